import dataclasses

import pytest
import torch

from losses.batches import batch, gradients, sources, value
from sightline.errors import ModelError
from sightline.losses import Distill

TEACHER, STUDENT = 2.0, 0.7


def test_a_student_that_agrees_has_nothing_to_learn() -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 2, 3])
    agreed = dataclasses.replace(pairs, teacher_scores=5 * pairs.late().detach() + 3)
    loss = value(Distill("fragments", 5 * STUDENT, STUDENT), agreed)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    for gradient in gradients(loss, sources(agreed)):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-6, rtol=0)
    assert value(Distill("fragments", STUDENT, STUDENT), agreed) > 0.01


def test_a_step_against_the_gradient_brings_the_student_closer() -> None:
    pairs, objective = batch([0, 0, 1, 2, 3], [0, 1, 2, 3], seed=4), Distill("embedding", TEACHER, STUDENT)
    before = value(objective, pairs)
    (towards,) = torch.autograd.grad(before, pairs.texts.embedding)
    moved = pairs.texts._replace(embedding=pairs.texts.embedding - 0.1 * towards)
    assert value(objective, dataclasses.replace(pairs, texts=moved)) < before - 1e-4


def test_the_teacher_gets_no_gradient() -> None:
    pairs = batch([0, 1, 2], [0, 1, 2])
    assert pairs.teacher_scores is not None
    pairs.teacher_scores.requires_grad_()
    value(Distill(), pairs).backward()
    assert pairs.teacher_scores.grad is None


def test_without_a_teacher_it_says_so() -> None:
    pairs = dataclasses.replace(batch([0, 1], [0, 1]), teacher_scores=None)
    with pytest.raises(ModelError, match=r"needs a teacher[\s\S]*\[teacher\]"):
        value(Distill(), pairs)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match=r"distill\.on cannot be 'pixels'"):
        Distill("pixels")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="all, positives"):
        Distill(over="negatives")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"distill\.teacher_temperature cannot be 0\.0"):
        Distill("embedding", 0.0, 1.0)
    with pytest.raises(ModelError, match=r"distill\.student_temperature cannot be -1\.0"):
        Distill("embedding", 1.0, -1.0)
