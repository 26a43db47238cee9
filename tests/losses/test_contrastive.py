import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from losses.batches import BATCHES, batch, value
from sightline.errors import ModelError
from sightline.losses import Contrastive, Pairs, contrastive


def literal(logits: list[float], positives: list[bool], smoothing: float) -> float | None:
    """L(a) of one anchor, whose row this is; None where it has no positive."""
    losses = []
    rivals = [logit for logit, positive in zip(logits, positives, strict=True) if not positive]
    for own in (logit for logit, positive in zip(logits, positives, strict=True) if positive):
        choices = [own, *rivals]
        normaliser = math.log(sum(math.exp(choice) for choice in choices))
        lost = [normaliser - choice for choice in choices]
        losses.append((1 - smoothing) * lost[0] + smoothing * sum(lost) / len(lost))
    return sum(losses) / len(losses) if losses else None


def mean(values: list[float | None]) -> float:
    there = [one for one in values if one is not None]
    return sum(there) / len(there) if there else 0.0


@settings(max_examples=50, deadline=None)
@given(pairs=BATCHES, temperature=st.sampled_from([0.02, 0.07, 1.0]), smoothing=st.sampled_from([0.0, 0.1]))
def test_it_is_the_mean_of_both_directions_over_all_anchors(pairs: Pairs, temperature: float, smoothing: float) -> None:
    texts, images = pairs.texts.embedding.detach().double(), pairs.images.embedding.detach().double()
    logits, positive = texts @ images.T / temperature, pairs.positive
    of_texts = [literal(*row, smoothing) for row in zip(logits.tolist(), positive.tolist(), strict=True)]
    of_images = [literal(*row, smoothing) for row in zip(logits.T.tolist(), positive.T.tolist(), strict=True)]
    expected = 0.5 * mean(of_texts) + 0.5 * mean(of_images)
    loss = value(Contrastive(temperature, label_smoothing=smoothing), pairs)
    assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def slow_late(pairs: Pairs) -> list[list[float]]:
    """Equation 5 of paper 3, word by word."""
    sides = [zip(side.fragments.detach().double(), side.mask, strict=True) for side in (pairs.texts, pairs.images)]
    texts, images = ([fragments[mask] for fragments, mask in side] for side in sides)
    return [[sum(max(float(w @ p) for p in image) for w in text) for image in images] for text in texts]


@settings(max_examples=30, deadline=None)
@given(pairs=BATCHES, chunk=st.integers(1, 7))
def test_late_interaction_is_that_of_the_paper(pairs: Pairs, chunk: int) -> None:
    torch.testing.assert_close(pairs.late(chunk), torch.tensor(slow_late(pairs)), rtol=1e-5, atol=1e-5)


def test_the_loss_on_fragments_is_that_of_their_late_interaction() -> None:
    pairs = batch([0, 0, 1, 2], [0, 1, 2], seed=3)
    late = torch.tensor(slow_late(pairs), dtype=torch.float64)
    logits, positive = (late / 0.5).tolist(), pairs.positive
    of_texts = [literal(*row, 0.0) for row in zip(logits, positive.tolist(), strict=True)]
    of_images = [literal(*row, 0.0) for row in zip((late.T / 0.5).tolist(), positive.T.tolist(), strict=True)]
    objective = Contrastive(0.5, on="fragments")
    assert objective.needs == {"fragments"}
    loss = value(objective, pairs)
    assert loss.item() == pytest.approx(0.5 * mean(of_texts) + 0.5 * mean(of_images), rel=1e-5)
    loss.backward()
    for side in (pairs.texts, pairs.images):
        assert side.fragments.grad is not None
        assert side.fragments.grad[side.mask].abs().sum() > 0
        assert side.fragments.grad[~side.mask].abs().sum() == 0
        assert side.embedding.grad is None


def test_late_interaction_sends_a_word_to_its_best_patch_alone() -> None:
    pairs = batch([0, 1, 1], [0, 1], seed=5)
    pairs.late()[2, 1].backward()
    words, patches = pairs.texts.fragments, pairs.images.fragments
    best = (words[2] @ patches[1].T).masked_fill(~pairs.images.mask[1], -2).argmax(1)
    assert words.grad is not None
    torch.testing.assert_close(words.grad[2], patches[1][best].detach())
    assert words.grad[:2].abs().sum() == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_with_one_positive_each_it_is_cross_entropy(smoothing: float) -> None:
    logits = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    plain = F.cross_entropy(logits, torch.arange(6), label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(contrastive.info_nce(logits, torch.eye(6, dtype=torch.bool), smoothing), plain)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_gradients_are_those_of_finite_differences(smoothing: float) -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 1, 4], seed=1)
    logits = (5 * pairs.cosines().detach().double()).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: contrastive.info_nce(x, pairs.positive, smoothing), logits)


def test_the_closest_of_several_positives_is_not_pushed_away() -> None:
    logits = torch.tensor([[9.0, 1.0, 0.0]], requires_grad=True)
    contrastive.info_nce(logits, torch.tensor([[True, True, False]])).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] <= 0
    assert logits.grad[0, 1] < 0
    assert logits.grad[0, 2] > 0


def test_logits_in_the_hundreds_do_not_overflow() -> None:
    logits = torch.tensor([[-300.0, 300.0], [300.0, -300.0]], requires_grad=True)
    loss = contrastive.info_nce(logits, torch.eye(2, dtype=torch.bool))
    assert loss.tolist() == [600, 600]
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-1, 1], [1, -1]]


def test_the_temperature_learns_unless_told_not_to() -> None:
    pairs = batch([0, 1, 2], [0, 1, 2])
    learning, fixed = Contrastive(0.5), Contrastive(0.5, learn_temperature=False)
    value(learning, pairs).backward()
    assert learning.log_scale.grad is not None
    with torch.no_grad():
        up, down = (value(Contrastive(0.5 * math.exp(-step)), pairs).item() for step in (1e-2, -1e-2))
    assert learning.log_scale.grad.item() == pytest.approx((up - down) / 2e-2, rel=1e-2)
    value(fixed, pairs).backward()
    assert fixed.log_scale.grad is None


def test_the_scale_is_held_at_its_bound_and_can_come_back() -> None:
    pairs = batch([0, 1, 2, 3], [3, 2, 1, 0], seed=4)
    objective = Contrastive(0.01, max_scale=100)
    optimiser = torch.optim.SGD(objective.parameters(), lr=1)
    with torch.no_grad():
        objective.log_scale.fill_(7.0)
    at_bound = value(objective, pairs)
    assert objective.scale().item() == pytest.approx(100)
    torch.testing.assert_close(at_bound, value(Contrastive(0.01), pairs))
    assert at_bound > 1  # so wrong that a smaller scale would help
    at_bound.backward()
    optimiser.step()
    assert objective.scale().item() < 100


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match=r"at least 0\.01"):
        Contrastive(temperature=0.001)
    with pytest.raises(ModelError, match="temperature cannot be 0\nUse a number above 0"):
        Contrastive(temperature=0)
    with pytest.raises(ModelError, match="max_scale cannot be -1"):
        Contrastive(max_scale=-1)
    with pytest.raises(ModelError, match="label_smoothing cannot be 1"):
        Contrastive(label_smoothing=1.0)
