from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.datasets import Sampler, neighbours, one_caption, shuffled_pairs
from sightline.datasets.rounds import full_rounds, rounds_needed
from sightline.errors import DataError

COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=30).filter(any)
SIZES = st.integers(1, 12)
SEEDS = st.integers(0, 2**40)


def every_pair(counts):
    return Counter((image, caption) for image, count in enumerate(counts) for caption in range(count))


def pairs_of(batches):
    return Counter(tuple(map(int, row)) for batch in batches for row in batch)


def draws():
    return st.sampled_from(["pairs", "unique", "one"])


@given(COUNTS, SIZES, SEEDS, st.integers(0, 99), st.booleans())
def test_every_caption_comes_once_an_epoch(counts, size, seed, epoch, unique):
    batches = list(shuffled_pairs(counts, size, seed=seed, epoch=epoch, drop_last=False, unique_images=unique))
    assert pairs_of(batches) == every_pair(counts)
    assert all(batch.ndim == 2 and 1 <= len(batch) <= size and batch.dtype == np.int64 for batch in batches)


@given(COUNTS, SIZES, SEEDS, st.booleans())
def test_no_picture_is_twice_in_a_batch_of_unique_images(counts, size, seed, drop_last):
    size = min(size, np.count_nonzero(counts))
    for batch in shuffled_pairs(counts, size, seed=seed, epoch=0, drop_last=drop_last, unique_images=True):
        assert len(set(batch[:, 0].tolist())) == len(batch)


@given(COUNTS, SIZES, SEEDS)
def test_unique_batches_are_as_few_as_can_be_and_those_before_the_last_few_are_full(counts, size, seed):
    batches = list(shuffled_pairs(counts, size, seed=seed, epoch=0, drop_last=False, unique_images=True))
    assert len(batches) == max(-(-sum(counts) // size), max(counts))
    lengths = [len(batch) for batch in batches]
    assert lengths == sorted(lengths, reverse=True)


@given(COUNTS, SIZES, SEEDS, draws())
def test_dropping_the_last_leaves_only_full_batches_and_repeats_nothing(counts, size, seed, draw):
    size = min(size, np.count_nonzero(counts))
    batches = list(Sampler(counts, size, seed, draw).batches(0))
    assert {len(batch) for batch in batches} == {size}
    assert not pairs_of(batches) - every_pair(counts)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=7), st.integers(1, 4))
def test_the_number_of_full_batches_is_the_greatest_possible(counts, size):
    def most(left):  # taking those with the most captions left is optimal, and simple enough to trust
        left = sorted(left, reverse=True)
        if len(left) < size or left[size - 1] == 0:
            return 0
        return 1 + most([count - 1 for count in left[:size]] + left[size:])

    assert full_rounds(np.array(counts), size) == most(counts)


@given(COUNTS, SIZES, SEEDS, draws(), st.booleans())
def test_the_number_of_batches_is_known_beforehand(counts, size, seed, draw, drop_last):
    size = min(size, np.count_nonzero(counts))
    sampler = Sampler(counts, size, seed, draw, drop_last)
    assert len(list(sampler.batches(3))) == sampler.batches_per_epoch


@given(COUNTS, SIZES, SEEDS, draws(), st.integers(0, 5))
def test_seed_and_epoch_determine_everything_and_an_epoch_can_be_resumed(counts, size, seed, draw, start):
    sampler = Sampler(counts, size, seed, draw, drop_last=False)
    np.random.seed(0)  # noqa: NPY002
    first = [batch.tolist() for batch in sampler.batches(4)]
    np.random.seed(1)  # noqa: NPY002
    assert [batch.tolist() for batch in sampler.batches(4, start=start)] == first[start:]


def test_the_global_random_state_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    list(shuffled_pairs([5] * 20, 4, seed=0, epoch=0, unique_images=True))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("draw", ["pairs", "unique", "one"])
def test_epochs_and_seeds_differ(draw):
    def epoch(seed, number):
        return [batch.tolist() for batch in Sampler([3] * 40, 8, seed, draw).batches(number)]

    assert epoch(0, 0) != epoch(0, 1)
    assert epoch(0, 1) != epoch(1, 0)


@given(COUNTS, SIZES, SEEDS)
def test_one_caption_gives_every_captioned_picture_once(counts, size, seed):
    pairs = pairs_of(one_caption(counts, size, seed=seed, epoch=1, drop_last=False))
    assert sorted(image for image, _ in pairs) == np.flatnonzero(counts).tolist()
    assert not pairs - every_pair(counts)


def test_one_caption_draws_all_captions_evenly_over_the_epochs():
    drawn = Counter()
    for epoch in range(300):
        drawn += pairs_of(one_caption([3, 1, 0, 2], 3, seed=5, epoch=epoch))
    assert set(drawn) == {(0, 0), (0, 1), (0, 2), (1, 0), (3, 0), (3, 1)}
    assert all(70 <= drawn[0, caption] <= 130 for caption in range(3))


def test_what_is_dropped_changes_from_epoch_to_epoch():
    left_out = [every_pair([5] * 7) - pairs_of(Sampler([5] * 7, 6, 0, "unique").batches(epoch)) for epoch in range(20)]
    assert {sum(pairs.values()) for pairs in left_out} == {5}
    assert len(set(map(frozenset, left_out))) > 10


def test_unique_batches_mix_pictures_anew_so_the_same_ones_rarely_meet_again():
    batches = list(shuffled_pairs([5] * 200, 10, seed=0, epoch=0, unique_images=True))
    met = Counter(
        frozenset((a, b)) for batch in batches for a in batch[:, 0].tolist() for b in batch[:, 0].tolist() if a < b
    )
    assert sum(count > 1 for count in met.values()) / len(met) < 0.2


def test_many_pairs_are_scheduled_quickly():
    sampler = Sampler([5] * 30_000, 256, draw="unique")
    assert sum(len(batch) for batch in sampler.batches(0)) == 256 * sampler.batches_per_epoch == 149_760


def test_one_picture_with_very_many_captions_is_scheduled_too():
    counts = [2000] + [3] * 500
    batches = list(shuffled_pairs(counts, 32, seed=0, epoch=0, drop_last=False, unique_images=True))
    assert pairs_of(batches) == every_pair(counts)
    assert len(batches) == rounds_needed(np.array(counts), 32) == 2000
    assert Sampler(counts, 32, draw="unique").batches_per_epoch == 48


@pytest.mark.parametrize(("draw", "there"), [("pairs", "6 captions"), ("unique", "3 pictures"), ("one", "3 pictures")])
def test_too_few_for_one_batch_is_an_error_and_not_an_empty_epoch(draw, there):
    sampler = Sampler([2, 2, 0, 2], 7, draw=draw)
    with pytest.raises(DataError, match=f"batches of 7 cannot be drawn from only {there}"):
        sampler.batches(0)
    with pytest.raises(DataError, match=there):
        _ = sampler.batches_per_epoch


def test_no_captions_at_all_is_an_error():
    with pytest.raises(DataError, match="0 captions"):
        shuffled_pairs([0, 0], 1, seed=0, epoch=0, drop_last=False)


@pytest.mark.parametrize(("counts", "size"), [([1, -1], 1), ([[1], [2]], 1), ([1, 2], 0)])
def test_nonsense_is_refused_with_its_value(counts, size):
    with pytest.raises(ValueError, match=r"captions_per_image|batch_size"):
        shuffled_pairs(counts, size, seed=0, epoch=0)


def test_a_row_reads_as_a_pair():
    (batch,) = one_caption([0, 1], 1, seed=0, epoch=0)
    assert batch[0].tolist() == [1, 0]


def test_all_captions_gives_every_picture_once_with_all_it_has() -> None:
    counts = [5, 0, 1, 3, 2, 5]
    sampler = Sampler(counts, batch_size=2, seed=3, draw="all", drop_last=False)
    batches = list(sampler.batches(epoch=1))
    assert len(batches) == sampler.batches_per_epoch == 3
    assert all(len(np.unique(batch[:, 0])) <= 2 for batch in batches)
    rows = [tuple(row) for batch in batches for row in batch.tolist()]
    assert sorted(rows) == [(image, caption) for image, count in enumerate(counts) for caption in range(count)]
    assert [b.tolist() for b in sampler.batches(epoch=1, start=1)] == [b.tolist() for b in batches[1:]]
    assert [b.tolist() for b in sampler.batches(epoch=2)] != [b.tolist() for b in batches]


@given(COUNTS, SIZES, SEEDS, st.integers(1, 6), st.integers(1, 8))
def test_batches_of_neighbours_are_full_of_different_pictures_with_captions_of_theirs(counts, size, seed, k, clusters):
    size = min(size, np.count_nonzero(counts))
    cluster_of = np.arange(len(counts)) % clusters
    for batch in islice(neighbours(counts, cluster_of, size, k, seed=seed, epoch=1), 5):
        assert batch.shape == (size, 2)
        assert len(set(batch[:, 0].tolist())) == size
        assert (batch[:, 1] < np.array(counts)[batch[:, 0]]).all()


def test_neighbours_are_of_as_many_clusters_as_fit_each_with_as_many_pictures_as_told():
    cluster_of = np.repeat(np.arange(10), 12)
    for batch in islice(neighbours([5] * 120, cluster_of, 16, 4, seed=3, epoch=0), 20):
        assert sorted(Counter(cluster_of[batch[:, 0]]).values()) == [4, 4, 4, 4]


def test_every_picture_is_as_likely_to_be_among_neighbours_however_large_its_cluster():
    cluster_of = np.repeat([0, 1, 2, 3], [40, 20, 10, 10])
    drawn = Counter()
    for batch in islice(neighbours([2] * 80, cluster_of, 4, 4, seed=3, epoch=0), 8000):
        drawn.update(batch[:, 0].tolist())
    assert all(abs(drawn[image] - 400) < 100 for image in range(80))


def test_neighbours_follow_from_seed_and_epoch():
    def first(seed, epoch):
        return np.concatenate(list(islice(neighbours([3] * 20, np.arange(20) % 4, 6, 3, seed=seed, epoch=epoch), 4)))

    assert np.array_equal(first(1, 2), first(1, 2))
    assert not np.array_equal(first(1, 2), first(1, 3))
    assert not np.array_equal(first(1, 2), first(2, 2))
