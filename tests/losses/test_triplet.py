import dataclasses
import math
from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from losses.batches import BATCHES, batch, gradients, sources, value
from sightline.errors import ModelError
from sightline.losses import Pairs, Triplet, triplet
from sightline.losses.base import Scores

MARGIN = 0.25


def terms(cosines: list[float], positives: list[bool], item: int) -> list[float]:
    """Terms of the pair of an anchor, whose row this is, with `item`: one for each of the anchor's negatives."""
    rivals = [cosine for cosine, positive in zip(cosines, positives, strict=True) if not positive]
    return [max(0.0, rival - cosines[item] + MARGIN) for rival in rivals]


def literal(pairs: Pairs, negatives: Literal["hardest", "mean", "sum"], on: Scores = "embedding") -> float:
    join = {"hardest": max, "mean": lambda found: sum(found) / len(found), "sum": sum}[negatives]
    scores = pairs.scores(on).detach().double()
    total, count = 0.0, 0
    for t, text_id in enumerate(pairs.text_ids.tolist()):
        for i, image_id in enumerate(pairs.image_ids.tolist()):
            if text_id != image_id:
                continue
            count += 1
            of_text = terms(scores[t].tolist(), (pairs.image_ids == text_id).tolist(), i)
            of_image = terms(scores[:, i].tolist(), (pairs.text_ids == image_id).tolist(), t)
            total += join(of_text) if of_text else 0
            total += join(of_image) if of_image else 0
    return total / count if count else 0.0


@pytest.mark.parametrize("negatives", ["hardest", "mean", "sum"])
@settings(max_examples=40, deadline=None)
@given(pairs=BATCHES)
def test_it_is_equation_2_for_every_positive_pair(pairs: Pairs, negatives: Literal["hardest", "mean", "sum"]) -> None:
    assert value(Triplet(MARGIN, negatives), pairs).item() == pytest.approx(literal(pairs, negatives), abs=2e-6)


@pytest.mark.parametrize("negatives", ["hardest", "sum"])
@settings(max_examples=40, deadline=None)
@given(pairs=BATCHES)
def test_on_fragments_it_is_equation_4_of_paper_3(pairs: Pairs, negatives: Literal["hardest", "sum"]) -> None:
    expected = literal(pairs, negatives, on="fragments")
    assert value(Triplet(MARGIN, negatives, on="fragments"), pairs).item() == pytest.approx(expected, abs=2e-5)


def literal_draw(cosines: list[float], positives: list[bool], dim: int, number: float) -> int | None:
    weights = []
    for cosine, positive in zip(cosines, positives, strict=True):
        distance = max(0.5, math.sqrt(max(0.0, 2 - 2 * cosine)))
        density = distance ** (dim - 2) * (1 - distance**2 / 4) ** ((dim - 3) / 2)
        weights.append(0.0 if positive or distance >= 1.7 else 1 / density)
    target = number * sum(weights)
    for place, weight in enumerate(weights):
        target -= weight
        assume(abs(target) > 1e-4 * weight)  # on the very border float32 may decide otherwise
        if target < 0:
            return place
    return None


@settings(max_examples=40, deadline=None)
@given(pairs=BATCHES, seed=st.integers(0, 999))
def test_by_distance_every_positive_pair_meets_the_negative_that_its_number_draws(pairs: Pairs, seed: int) -> None:
    texts, images = pairs.texts.embedding.detach().double(), pairs.images.embedding.detach().double()
    numbers = torch.rand(2, len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    total, count = 0.0, 0
    for t, i in pairs.positive.nonzero().tolist():
        count += 1
        rows = [
            ((images @ texts[t]).tolist(), (pairs.image_ids == pairs.text_ids[t]).tolist(), i, numbers[0][t]),
            ((texts @ images[i]).tolist(), (pairs.text_ids == pairs.image_ids[i]).tolist(), t, numbers[1][t]),
        ]
        for cosines, positives, item, number in rows:
            rival = literal_draw(cosines, positives, texts.shape[1], number)
            total += 0 if rival is None else max(0.0, cosines[rival] - cosines[item] + MARGIN)
    expected = total / max(1, count)
    assert value(Triplet(MARGIN, "distance"), pairs, seed).item() == pytest.approx(expected, abs=2e-6)


def test_by_distance_each_caption_of_an_image_draws_for_itself() -> None:
    pairs = batch([0] * 200 + list(range(1, 9)), list(range(9)), dim=8)
    numbers = torch.rand(2, 208, 1, generator=torch.Generator().manual_seed(0))
    assert numbers.unique().numel() == numbers.numel()
    weights = triplet.inverse_density(pairs.cosines().T[:1].detach(), 8, 0.5)
    rivals = triplet.draw_each(weights, ~pairs.positive.T[:1], numbers[1, :200].T)
    assert rivals.unique().numel() > 4


@pytest.mark.parametrize("negatives", ["hardest", "mean", "sum", "distance"])
def test_several_matrices_of_cosines_at_once_have_the_losses_that_each_has_alone(
    negatives: triplet.TripletNegatives,
) -> None:
    objective = Triplet(MARGIN, negatives)
    pairs = dataclasses.replace(batch([0, 0, 1, 2, 3], [0, 1, 1, 4]), own_texts=slice(1, 4), own_images=slice(0, 3))
    several = torch.stack([batch([0] * 5, [0] * 4, seed).cosines() for seed in (1, 2, 3)]).detach().requires_grad_()
    numbers = objective.numbers(pairs, torch.Generator().manual_seed(5), (3,))
    losses = objective.of(several, pairs, numbers)
    assert losses.unique().numel() == 3
    for i, loss in enumerate(losses):
        alone = several[i].detach().requires_grad_()
        expected = objective.of(alone, pairs, numbers[:, i])
        torch.testing.assert_close(loss, expected)
        (found,) = torch.autograd.grad(loss, several, retain_graph=True)
        torch.testing.assert_close(found[i], torch.autograd.grad(expected, alone)[0])
        assert (found[torch.arange(3) != i] == 0).all()


@pytest.mark.parametrize("rule", [triplet.hardest, triplet.mean, triplet.every])
def test_gradients_are_those_of_finite_differences(rule: object) -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 1, 4], seed=1)
    cosines = pairs.cosines().detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda c: rule(c, pairs.positive, pairs.negative, MARGIN), cosines)  # type: ignore[operator]


def test_gradients_by_distance_are_those_of_finite_differences() -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 1, 4], seed=1)
    cosines = pairs.cosines().detach().double().requires_grad_()
    weights, numbers = triplet.inverse_density(cosines.detach(), 5, 0.5), torch.rand(5, 4)
    assert torch.autograd.gradcheck(
        lambda c: triplet.drawn(c, pairs.positive, MARGIN, weights, ~pairs.positive, numbers), cosines
    )


def test_only_the_hardest_negatives_get_a_gradient() -> None:
    pairs = batch([0, 1, 2, 3], [0, 1, 2, 3], seed=2)
    cosines = pairs.cosines().detach().requires_grad_()
    (gradient,) = torch.autograd.grad(triplet.hardest(cosines, pairs.positive, pairs.negative, margin=2.0), cosines)
    pushed = gradient > 0
    assert pushed.sum(1).tolist() == [1, 1, 1, 1]
    hardest = cosines.detach().masked_fill(pairs.positive, -9).argmax(1)
    assert pushed.int().argmax(1).tolist() == hardest.tolist()


def test_a_solved_batch_costs_nothing() -> None:
    pairs = batch([0, 1], [0, 1])
    solved = pairs.texts._replace(embedding=torch.eye(2).requires_grad_())
    pairs = Pairs(solved, solved, pairs.text_ids, pairs.image_ids)
    loss = value(Triplet(0.1), pairs)
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients(loss, sources(pairs)))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match="hardest, mean, sum, distance"):
        Triplet(negatives="easiest")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"triplet\.margin cannot be -1"):
        Triplet(margin=-1.0)
    with pytest.raises(ModelError, match="is at most 2"):
        Triplet(nearest=1.5, farthest=1.2)
    with pytest.raises(ModelError, match=r"triplet\.on cannot be 'pixels'"):
        Triplet(on="pixels")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="single vectors have distances"):
        Triplet(negatives="distance", on="fragments")
