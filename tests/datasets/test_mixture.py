"""A mixture draws each batch from one source, keeps every source's share, and can resume at any step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.datasets import Mixture, MixtureSource, Sampler

SHARES = st.lists(st.floats(0.02, 1.0), min_size=1, max_size=5)


def mixture(shares: list[float], seed: int = 0) -> Mixture:
    """Sources of 10, 14, 18, … images, each with two captions, in batches of 3."""
    sources, first = [], 0
    for number, share in enumerate(shares):
        images = 10 + 4 * number
        sources.append(MixtureSource(Sampler([2] * images, 3, seed, "unique"), share, first))
        first += images
    return Mixture(sources, seed)


@settings(max_examples=50, deadline=None)
@given(shares=SHARES, seed=st.integers(0, 99), steps=st.integers(0, 300))
def test_every_source_has_its_share_of_any_stretch_of_steps(shares: list[float], seed: int, steps: int) -> None:
    order = mixture(shares, seed).order(400)
    expected = np.array(shares) / sum(shares)
    for window in (order[:steps], order[steps : steps + 100]):
        counts = np.bincount(window, minlength=len(shares))
        assert np.abs(counts - expected * len(window)).max() <= 2 * len(shares)


@settings(max_examples=25, deadline=None)
@given(shares=SHARES, seed=st.integers(0, 99), start=st.integers(0, 59))
def test_a_run_resumes_at_any_step_with_the_same_batches(shares: list[float], seed: int, start: int) -> None:
    whole = list(mixture(shares, seed).batches(0, 60))
    rest = list(mixture(shares, seed).batches(start, 60))
    assert [one.step for one in whole] == list(range(60))
    for expected, found in zip(whole[start:], rest, strict=True):
        assert expected.step == found.step
        assert expected.source == found.source
        assert np.array_equal(expected.pairs, found.pairs)


def test_a_batch_has_images_of_its_own_source_only() -> None:
    limits = [0, 10, 24, 42]
    for _, source, pairs in mixture([0.5, 0.3, 0.2]).batches(0, 100):
        assert (pairs[:, 0] >= limits[source]).all()
        assert (pairs[:, 0] < limits[source + 1]).all()


def test_a_source_goes_through_all_its_captions_before_it_begins_anew() -> None:
    batches = [pairs for _, source, pairs in mixture([0.8, 0.2]).batches(0, 120) if source == 0]
    per_epoch = Sampler([2] * 10, 3, 0, "unique").batches_per_epoch
    assert len(batches) > 2 * per_epoch
    for epoch in range(2):
        pairs = [tuple(pair) for batch in batches[epoch * per_epoch :][:per_epoch] for pair in batch.tolist()]
        assert len(set(pairs)) == len(pairs) == 3 * per_epoch


def test_sources_do_not_follow_a_fixed_rhythm() -> None:
    order = mixture([0.5, 0.5]).order(200)
    assert 0.3 < (order[::2] == 0).mean() < 0.7, "losses that take turns would each see one source only"
    assert not np.array_equal(order, mixture([0.5, 0.5], seed=1).order(200))


def test_more_steps_do_not_change_the_order_of_those_before() -> None:
    assert np.array_equal(mixture([0.6, 0.4]).order(77), mixture([0.6, 0.4]).order(500)[:77])


@pytest.mark.parametrize("shares", [[], [1.0, 0.0]])
def test_a_mixture_without_sources_or_with_a_share_of_nothing_is_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one source"):
        mixture(shares)
