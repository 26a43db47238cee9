"""The losses of paper 3 are its equations, in float64 and with their gradients; one fragment is the fast model."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tiny
from losses import literal_shrink as literal
from losses.batches import batch, gradients, value
from losses.masked import tokens
from losses.test_literal_hrem import doubled, pairs_of
from sightline.losses import Distill, Pairs, Triplet
from sightline.models import DualStream

SEEDS = st.integers(0, 999)
few = settings(max_examples=8, deadline=None)


def scores_of(pairs: Pairs, on: Any) -> Tensor:
    """Equation 3 with the embedding as the first fragment, or equation 5: [texts, images]."""
    rows = []
    for t in range(len(pairs.text_ids)):
        row = []
        for i in range(len(pairs.image_ids)):
            if on == "embedding":
                row.append(literal.global_eq3(pairs.texts.embedding[t, None], pairs.images.embedding[i, None]))
            else:
                words = pairs.texts.fragments[t][pairs.texts.mask[t]]
                row.append(literal.late_eq5(words, pairs.images.fragments[i][pairs.images.mask[i]]))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def assert_same(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize(("on", "margin"), [("embedding", 0.2), ("fragments", 0.6)])
@few
@given(seed=SEEDS)
def test_triplets_are_equation_4_of_the_scores_of_equations_3_and_5(on: Any, margin: float, seed: int) -> None:
    pairs, leaves = pairs_of(seed)
    found = value(Triplet(margin, "sum", on=on, reduction="sum"), pairs)
    assert_same(found, literal.triplet_eq4(scores_of(pairs, on), margin), leaves)


@pytest.mark.parametrize("on", ["embedding", "fragments"])
@few
@given(seed=SEEDS, temperatures=st.sampled_from([(2.0, 12.0), (12.0, 12.0), (0.5, 1 / 12)]))
def test_over_positives_distillation_is_equation_6_as_printed(
    on: Any, seed: int, temperatures: tuple[float, float]
) -> None:
    pairs, leaves = pairs_of(seed)
    assert pairs.teacher_scores is not None
    found = value(Distill(on, *temperatures, over="positives"), pairs)
    assert_same(found, literal.distil_eq6(pairs.teacher_scores.double(), scores_of(pairs, on), *temperatures), leaves)


@few
@given(seed=SEEDS)
def test_over_all_distillation_is_the_usual_one_of_both_directions_less_the_teachers_entropy(seed: int) -> None:
    pairs, leaves = pairs_of(seed)
    assert pairs.teacher_scores is not None
    teacher, student = pairs.teacher_scores.double(), scores_of(pairs, "embedding")
    expected = torch.zeros((), dtype=torch.float64)
    for t, s in ((teacher, student), (teacher.T, student.T)):
        entropy = literal.distil_full(t, t, 2.0, 2.0)
        expected = expected + 0.5 * (literal.distil_full(t, s, 2.0, 0.7) - entropy) / len(t)
    assert_same(value(Distill("embedding", 2.0, 0.7), pairs), expected, leaves)


def test_a_text_without_its_image_is_ignored_by_both_forms() -> None:
    pairs, _ = doubled(batch([0, 1, 9], [0, 1, 2], 3, 4))
    known = dataclasses.replace(
        pairs, texts=type(pairs.texts)(*(None if part is None else part[:2] for part in pairs.texts)),
        text_ids=pairs.text_ids[:2], teacher_scores=pairs.teacher_scores[:2],  # type: ignore[index]
    )  # fmt: skip
    positives = Distill("embedding", 2.0, 0.7, over="positives")
    torch.testing.assert_close(value(positives, pairs), value(positives, known))


@torch.no_grad()
def test_with_one_fragment_late_interaction_compares_the_two_cls_as_the_fast_model() -> None:
    model = tiny.retriever(dataclasses.replace(tiny.PIXEL_MODELS["dual-reader"], fragments=1, fragment_dim=16))
    assert isinstance(model, DualStream)
    model.image_fragments.load_state_dict(model.image_embedding.state_dict())
    model.text_fragments.load_state_dict(model.text_embedding.state_dict())
    texts, images = model.encode_texts(tokens()), model.encode_images(torch.randn(3, 3, 32, 32))
    pairs = Pairs(texts, images, torch.arange(len(texts.embedding)), torch.arange(3))
    assert images.fragments.shape[1] == texts.fragments.shape[1] == 1
    torch.testing.assert_close(pairs.late(), pairs.cosines())
