from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.datasets import BudgetSampler, Record, captions_in_any
from sightline.errors import DataError
from sightline.media import ImageBytes

SIZES = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.integers(2, 12), max_size=4)), min_size=1, max_size=25
).filter(lambda images: any(lengths for _, lengths in images))


def sampler_of(images, budget, seed=0):
    """Images as (regions, lengths of captions)."""
    lengths = [length for _, some in images for length in some]
    return BudgetSampler([len(some) for _, some in images], lengths, [regions for regions, _ in images], budget, seed)


def costs(images, batch):
    lengths = [images[image][1][caption] for image, caption in batch]
    return len(batch) * (max(lengths) + max(images[image][0] for image, _ in batch))


@given(SIZES, st.integers(21, 120), st.integers(0, 2**40), st.integers(0, 9))
def test_every_caption_comes_once_in_batches_within_the_budget(images, budget, seed, epoch):
    sampler = sampler_of(images, budget, seed)
    batches = list(sampler.batches(epoch))
    assert Counter(tuple(map(int, pair)) for batch in batches for pair in batch) == Counter(
        (image, caption) for image, (_, lengths) in enumerate(images) for caption in range(len(lengths))
    )
    assert all(costs(images, batch) <= budget for batch in batches)
    assert len(batches) == sampler.batches_per_epoch
    assert all(batch.dtype == np.int64 for batch in batches)


@given(SIZES, st.integers(21, 120))
def test_a_resumed_epoch_goes_on_where_it_stopped(images, budget):
    whole = [batch.tolist() for batch in sampler_of(images, budget).batches(3)]
    for start in (0, 1, len(whole)):
        assert [batch.tolist() for batch in sampler_of(images, budget).batches(3, start=start)] == whole[start:]


def many():
    chance = np.random.default_rng(0)
    return [(49, chance.integers(8, 30, 5).tolist()) for _ in range(400)]


def test_little_of_a_batch_is_padding_and_nearly_all_of_the_budget_is_used():
    images, budget = many(), 4096
    batches = list(sampler_of(images, budget).batches(0))
    real = sum(49 + images[image][1][caption] for batch in batches for image, caption in batch)
    padded = sum(costs(images, batch) for batch in batches)
    assert real / padded > 0.98
    full = sorted(costs(images, batch) for batch in batches)[1:]  # the last of the longest may be small
    assert min(full) > 0.95 * budget


def test_other_epochs_and_seeds_have_other_batches_and_another_order():
    images = many()
    first, again, later, other = (
        [batch.tolist() for batch in sampler_of(images, 4096, seed).batches(epoch)]
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert first == again
    sets = [{frozenset(map(tuple, batch)) for batch in batches} for batches in (first, later, other)]
    assert not sets[0] & sets[1]
    assert not sets[0] & sets[2]
    lengths = [max(images[image][1][caption] for image, caption in batch) for batch in first]
    assert lengths != sorted(lengths)


def test_a_pair_that_fits_no_batch_is_refused():
    with pytest.raises(DataError, match="12 tokens with an image of 9 regions does not fit in a batch of 20"):
        sampler_of([(9, [12])], 20)
    with pytest.raises(DataError, match="no captions"):
        sampler_of([(9, [])], 20)


def test_captions_of_several_languages_stand_one_language_after_another_and_some_may_be_missing():
    captions = {"en": ("a dog", "the dog"), "de": ("ein Hund",)}
    record = Record("it", ImageBytes("it.png", b""), captions)
    assert captions_in_any(record, ("de", "fr", "en")) == ("ein Hund", "a dog", "the dog")
    assert captions_in_any(record, "en") == ("a dog", "the dog")
    with pytest.raises(DataError, match=r"needs captions in one of fr, cs, but has de, en"):
        captions_in_any(record, ("fr", "cs"))
    with pytest.raises(DataError, match="needs captions in 'fr'"):
        captions_in_any(record, "fr")
