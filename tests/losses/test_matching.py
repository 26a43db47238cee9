import dataclasses
import math
from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from losses.batches import BATCHES, Judge, batch, gradients, masked_sum, sources, value
from sightline.errors import ModelError
from sightline.losses import Matching, Pairs

TEMPERATURE = 0.3
Negatives = Literal["random", "hard"]
PerPositive = Literal["one", "both"]
KINDS = pytest.mark.parametrize(
    ("negatives", "per_positive"), [(n, p) for n in ("random", "hard") for p in ("one", "both")]
)


def literal_draw(cosines: list[float], allowed: list[bool], number: float, hard: bool) -> int | None:
    weights = [math.exp(cosine / TEMPERATURE) if hard else 1.0 for cosine in cosines]
    weights = [weight if there else 0.0 for weight, there in zip(weights, allowed, strict=True)]
    target = number * sum(weights)
    for place, weight in enumerate(weights):
        target -= weight
        assume(abs(target) > 1e-4 * weight)  # on the very border float32 may decide otherwise
        if target < 0:
            return place
    return None


def literal_pairs(
    pairs: Pairs, hard: bool, per_positive: PerPositive, numbers: list[list[float]]
) -> list[tuple[int, int, int]]:
    """Text, image and label of every pair to be judged; positives as often as they have negatives."""
    cosines = pairs.texts.embedding.detach().double() @ pairs.images.embedding.detach().double().T
    text_ids, image_ids = pairs.text_ids.tolist(), pairs.image_ids.tolist()
    found = []
    for t, text_id in enumerate(text_ids):
        if text_id not in image_ids:
            continue
        i = image_ids.index(text_id)
        if per_positive == "both" or t % 2 == 0:
            other = literal_draw(cosines[t].tolist(), [x != text_id for x in image_ids], numbers[0][t], hard)
            found += [] if other is None else [(t, i, 1), (t, other, 0)]
        if per_positive == "both" or t % 2 == 1:
            other = literal_draw(cosines[:, i].tolist(), [x != text_id for x in text_ids], numbers[1][t], hard)
            found += [] if other is None else [(t, i, 1), (other, i, 0)]
    return found


@KINDS
@settings(max_examples=20, deadline=None)
@given(pairs=BATCHES, seed=st.integers(0, 999))
def test_it_is_the_mean_cross_entropy_of_positives_and_as_many_negatives(
    negatives: Negatives, per_positive: PerPositive, pairs: Pairs, seed: int
) -> None:
    numbers = torch.rand(2, len(pairs.text_ids), generator=torch.Generator().manual_seed(seed)).tolist()
    found = literal_pairs(pairs, negatives == "hard", per_positive, numbers)
    loss = value(Matching(negatives, per_positive, TEMPERATURE), pairs, seed)
    if not found:
        assert loss == 0
        return
    texts, images, labels = (torch.tensor(column) for column in zip(*found, strict=True))
    assert pairs.texts.states is not None
    assert pairs.images.states is not None
    sums = masked_sum(pairs.texts.states, pairs.texts.mask), masked_sum(pairs.images.states, pairs.images.mask)
    logits = (sums[0][texts] * sums[1][images]).sum(1)
    expected = F.binary_cross_entropy_with_logits(logits, labels.float())
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(gradients(loss, sources(pairs)), gradients(expected, sources(pairs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@KINDS
@settings(max_examples=20, deadline=None)
@given(pairs=BATCHES, seed=st.integers(0, 999))
def test_negatives_are_of_another_picture_and_classes_balance(
    negatives: Negatives, per_positive: PerPositive, pairs: Pairs, seed: int
) -> None:
    chosen = Matching(negatives, per_positive).choose(pairs, torch.Generator().manual_seed(seed))
    together = pairs.positive[chosen.texts, chosen.images]
    assert together.tolist() == (chosen.labels == 1).tolist()
    if len(chosen.texts):
        assert chosen.weights[together].sum().item() == pytest.approx(0.5)
        assert chosen.weights[~together].sum().item() == pytest.approx(0.5)
    if per_positive == "one":
        assert together.sum() == (~together).sum()


def frequencies(negatives: Negatives, side: Literal["image", "text"]) -> tuple[Tensor, Tensor]:
    """How often each of six negatives was drawn for one of 3,000 alike pairs, and how often it should be."""
    count = 3000
    text_ids, image_ids = [0] * count + [1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]
    pairs = batch(text_ids, image_ids)
    texts = pairs.texts.embedding.detach().clone()
    texts[:count] = texts[0]
    pairs = dataclasses.replace(pairs, texts=pairs.texts._replace(embedding=texts))
    chosen = Matching(negatives, "both", TEMPERATURE).choose(pairs, torch.Generator().manual_seed(5))
    cosines = pairs.cosines().detach().double() / TEMPERATURE
    if side == "image":
        drawn = chosen.images[(chosen.labels == 0) & (chosen.texts < count)] - 1
        logits = cosines[0, 1:]
    else:
        drawn = chosen.texts[(chosen.labels == 0) & (chosen.images == 0) & (chosen.texts >= count)] - count
        logits = cosines[count:, 0]
    # Texts of other pictures draw as well, a handful that may land among these.
    seen = torch.bincount(drawn, minlength=6)[:6].double()
    return seen, (logits if negatives == "hard" else torch.zeros(6).double()).softmax(0) * count


@pytest.mark.parametrize("negatives", ["random", "hard"])
@pytest.mark.parametrize("side", ["image", "text"])
def test_negatives_are_as_frequent_as_they_should_be(negatives: Negatives, side: Literal["image", "text"]) -> None:
    seen, expected = frequencies(negatives, side)
    assert ((seen - expected) ** 2 / expected).sum() < 25  # five degrees of freedom: once in seven thousand times


@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
def test_chunks_give_the_same_loss_and_gradients(chunk: int) -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 2, 3], seed=3)
    whole, parts = value(Matching(), pairs), value(Matching(chunk=chunk), pairs)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)
    for one, other in zip(gradients(parts, sources(pairs)), gradients(whole, sources(pairs)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_no_more_than_a_chunk_is_judged_at_a_time() -> None:
    sizes = []

    class Counting(Judge):
        def match(self, *inputs: Tensor) -> Tensor:
            sizes.append(len(inputs[0]))
            return super().match(*inputs)

    loss = Matching(chunk=4)(batch([0, 1, 2, 3], [0, 1, 2, 3]), Counting(), torch.Generator())
    assert sizes == [4, 4, 4]
    loss.backward()
    assert sizes == [4] * 6  # once more each, rather than kept


def test_embeddings_choose_but_get_no_gradient() -> None:
    pairs = batch([0, 1, 2], [0, 1, 2])
    value(Matching("hard"), pairs).backward()
    assert pairs.texts.embedding.grad is None
    assert pairs.images.embedding.grad is None
    for side in (pairs.texts, pairs.images):
        assert side.states is not None
        assert side.states.grad is not None


def test_a_model_without_a_matcher_is_refused() -> None:
    pairs = batch([0, 1], [0, 1])
    pairs = dataclasses.replace(pairs, images=pairs.images._replace(states=None))
    with pytest.raises(ModelError, match="Build it with a matcher"):
        value(Matching(), pairs)


@pytest.mark.parametrize(
    "wrong", [{"negatives": "easy"}, {"per_positive": "three"}, {"temperature": 0.0}, {"chunk": -1}], ids=str
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=next(iter(wrong))):
        Matching(**wrong)  # type: ignore[arg-type]
