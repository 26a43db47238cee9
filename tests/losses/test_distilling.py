import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings

from losses.batches import BATCHES, batch, gradients, sources, value
from sightline.errors import ModelError
from sightline.losses import Distill, Pairs
from sightline.losses.base import Scores

TEACHER, STUDENT = 2.0, 0.7


def softmax(scores: list[float], temperature: float) -> list[float]:
    weights = [math.exp(score / temperature) for score in scores]
    return [weight / sum(weights) for weight in weights]


def literal(pairs: Pairs, on: Scores, positives_only: bool) -> float:
    assert pairs.teacher_scores is not None
    taught, found, positive = pairs.teacher_scores.double(), pairs.scores(on).detach().double(), pairs.positive
    total = 0.0
    for teacher, student, right in ((taught, found, positive), (taught.T, found.T, positive.T)):
        terms = []
        for scores, own, partners in zip(teacher.tolist(), student.tolist(), right.tolist(), strict=True):
            if not any(partners) or all(partners):
                continue
            p, q = softmax(scores, TEACHER), softmax(own, STUDENT)
            if positives_only:
                chosen = [-a * math.log(b) for a, b, is_right in zip(p, q, partners, strict=True) if is_right]
                terms.append(sum(chosen) / len(chosen))
            else:
                terms.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
        total += 0.5 * sum(terms) / max(1, len(terms))
    return total


@pytest.mark.parametrize("on", ["embedding", "fragments"])
@settings(max_examples=30, deadline=None)
@given(pairs=BATCHES)
def test_it_is_the_divergence_of_both_directions(on: Scores, pairs: Pairs) -> None:
    found = value(Distill(on, TEACHER, STUDENT), pairs)
    assert found.item() == pytest.approx(literal(pairs, on, positives_only=False), rel=1e-4, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(pairs=BATCHES)
def test_over_positives_it_is_equation_6_to_the_letter(pairs: Pairs) -> None:
    found = value(Distill("embedding", TEACHER, STUDENT, over="positives"), pairs)
    assert found.item() == pytest.approx(literal(pairs, "embedding", positives_only=True), rel=1e-4, abs=1e-5)


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
    with pytest.raises(ModelError, match="distill on 'pixels'"):
        Distill("pixels")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="all, positives"):
        Distill(over="negatives")  # type: ignore[arg-type]
    for temperatures in ((0.0, 1.0), (1.0, -1.0)):
        with pytest.raises(ModelError, match="above 0"):
            Distill("embedding", *temperatures)
