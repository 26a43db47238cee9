import time

import numpy as np
import pytest

from sightline.errors import EvaluationError
from sightline.evaluation.metrics import recall
from sightline.evaluation.resampling import Interval, bootstrap_both, paired_difference, paired_gain, wilson


def bootstrap(ranks: np.ndarray, clusters: np.ndarray | None = None, *, seed: int) -> dict[str, Interval]:
    """Intervals of one direction; without clusters, every query is drawn by itself."""
    own = np.arange(len(ranks)) if clusters is None else clusters
    images = np.unique(own)
    found = bootstrap_both(ranks, own, np.ones(len(images)), images, seed=seed)["text_to_image"]
    assert isinstance(found, dict)
    return found


def alike_within_images(rng: np.random.Generator, images: int, captions: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks that are the same for all captions of an image: as correlated as can be."""
    ranks = np.where(rng.random(images) < 0.6, 1.0, 50.0)
    return np.repeat(ranks, captions), np.repeat(np.arange(images), captions)


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_the_interval_holds_the_recall_and_has_the_width_of_theory() -> None:
    rng = np.random.default_rng(0)
    ranks = np.where(rng.random(2000) < 0.3, 1.0, 20.0)
    low, high = bootstrap(ranks, seed=0)["R@1"]
    assert low < recall(ranks, 1) < high
    p = recall(ranks, 1) / 100
    assert high - low == pytest.approx(100 * 2 * 1.96 * np.sqrt(p * (1 - p) / 2000), rel=0.1)


def test_intervals_cover_the_truth_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(200):
        ranks, clusters = alike_within_images(rng, 150, 3)
        low, high = bootstrap(ranks, clusters, seed=seed)["R@1"]
        covered += low <= 60 <= high
    assert 0.90 <= covered / 200 <= 0.99


def test_captions_of_one_image_are_not_independent_trials() -> None:
    ranks, clusters = alike_within_images(np.random.default_rng(2), 300, 5)
    by_image, by_caption = bootstrap(ranks, clusters, seed=0)["R@1"], bootstrap(ranks, seed=0)["R@1"]
    assert width(by_image) == pytest.approx(np.sqrt(5) * width(by_caption), rel=0.2)


def test_images_with_unequal_numbers_of_captions_keep_the_recall_inside() -> None:
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(200) * 7, rng.integers(1, 8, 200))
    ranks = rng.integers(1, 15, len(clusters)).astype(float)
    for name, (low, high) in bootstrap(ranks, clusters, seed=0).items():
        assert low <= recall(ranks, int(name.removeprefix("R@"))) <= high


def test_the_same_seed_gives_the_same_intervals_and_another_does_not() -> None:
    ranks = np.random.default_rng(4).integers(1, 15, 500).astype(float)
    assert bootstrap(ranks, seed=1) == bootstrap(ranks, seed=1)
    assert bootstrap(ranks, seed=1) != bootstrap(ranks, seed=2)


def test_recalls_of_0_and_100_have_wilsons_intervals() -> None:
    assert bootstrap(np.ones(50), seed=0)["R@1"] == pytest.approx((92.9, 100), abs=0.05)
    assert bootstrap(np.full(50, 99.0), seed=0)["R@1"] == pytest.approx((0, 7.1), abs=0.05)
    few_images = bootstrap(np.ones(50), np.repeat(np.arange(10), 5), seed=0)
    assert few_images["R@1"] == pytest.approx((72.2, 100), abs=0.05), "captions of an image are not independent"


def test_one_image_is_no_proof_however_many_captions_it_has() -> None:
    one = bootstrap_both(np.array([1.0, 1, 1, 9, 9]), np.zeros(5, int), np.ones(1), np.zeros(1, int), seed=0)
    assert one["text_to_image"]["R@1"] == pytest.approx((12.4, 91.7), abs=0.05)
    better = paired_difference(np.full(5, 2.0), np.ones(5), np.zeros(5, int), seed=0)["R@1"]
    assert better.value == 100
    assert better.high == pytest.approx(100)
    assert not better.significant


@pytest.mark.parametrize(("images", "significant"), [(1, False), (3, False), (20, True)])
def test_a_gain_on_every_image_is_significant_only_with_enough_images(images: int, significant: bool) -> None:
    worse, better, own = np.full(images, 2.0), np.ones(images), np.arange(images)
    assert paired_difference(worse, better, seed=0)["R@1"].significant is significant
    assert paired_gain((np.full(images, 20.0), better, own)).significant is significant


def test_the_sum_of_perfect_recalls_is_as_uncertain_as_they_are() -> None:
    both = bootstrap_both(np.ones(40), np.arange(40), np.ones(40), np.arange(40), seed=0)
    assert both["text_to_image"]["R@1"] == pytest.approx((91.2, 100), abs=0.05)
    assert both["mR"] == pytest.approx(both["text_to_image"]["R@1"])
    assert both["rSum"] == pytest.approx((547.4, 600), abs=0.05)


def test_both_directions_are_drawn_together() -> None:
    """Where an image is hard both ways, sums vary more than independent draws would have it."""
    rng = np.random.default_rng(5)
    ranks, clusters = alike_within_images(rng, 400, 2)
    both = bootstrap_both(ranks, clusters, ranks[::2], np.arange(400), seed=0)
    assert both["text_to_image"] == both["image_to_text"]
    low, high = both["rSum"]
    assert width((low, high)) == pytest.approx(6 * width(both["text_to_image"]["R@1"]), rel=0.01)
    assert both["mR"] == (pytest.approx(low / 6), pytest.approx(high / 6))


def test_a_paired_difference_sees_what_overlapping_intervals_hide() -> None:
    rng = np.random.default_rng(6)
    first = np.where(rng.random(1000) < 0.5, 1.0, 20.0)
    second = first.copy()
    second[np.flatnonzero(first > 1)[:15]] = 1.0
    assert bootstrap(first, seed=0)["R@1"][1] > bootstrap(second, seed=0)["R@1"][0]
    gain = paired_difference(first, second, seed=0)["R@1"]
    assert gain.value == pytest.approx(1.5)
    assert 0 < gain.low < gain.value < gain.high
    assert gain.significant
    assert not paired_difference(first, first, seed=0)["R@1"].significant


def test_the_gain_in_the_sum_of_recalls_draws_captions_with_their_images() -> None:
    rng, image_of = np.random.default_rng(7), np.repeat(np.arange(100), 5)
    texts, images = np.repeat(rng.choice([1.0, 3, 20], 100), 5), rng.choice([1.0, 3, 20], 100)
    better = np.where(np.arange(500) < 100, 1.0, texts)
    one, both = (
        paired_gain((texts, better, image_of)),
        paired_gain((texts, better, image_of), (images, images, image_of[::5])),
    )
    assert (
        one.value
        == both.value
        == pytest.approx(sum(d.value for d in paired_difference(texts, better, seed=0).values()))
    )
    assert (one.low, one.high) == (both.low, both.high), "what does not change adds nothing to the interval"
    alone = paired_gain((texts, better, np.arange(500)))
    assert alone.high - alone.low < 0.7 * (one.high - one.low), "captions of an image are no independent trials"


def test_systems_asked_different_numbers_of_queries_are_not_paired() -> None:
    with pytest.raises(EvaluationError, match="3 ranks with 4"):
        paired_difference(np.ones(3), np.ones(4), seed=0)


def test_infinite_ranks_are_misses() -> None:
    assert bootstrap(np.full(9, np.inf), seed=0)["R@10"] == wilson(0, 9)


@pytest.mark.parametrize("clusters", [np.zeros(3, int), np.zeros(0, int)])
def test_cluster_numbers_must_match_the_queries(clusters: np.ndarray) -> None:
    with pytest.raises(EvaluationError, match="image indices for"):
        bootstrap(np.ones(4), clusters, seed=0)


def test_no_queries_cannot_be_resampled() -> None:
    with pytest.raises(EvaluationError, match="no queries"):
        bootstrap(np.ones(0), seed=0)


def test_a_thousand_resamples_of_25_000_queries_take_well_under_a_second() -> None:
    rng = np.random.default_rng(7)
    ranks = rng.integers(1, 30, 25_000).astype(float)
    start = time.process_time()
    bootstrap(ranks, np.repeat(np.arange(5000), 5), seed=0)
    assert time.process_time() - start < 0.8
