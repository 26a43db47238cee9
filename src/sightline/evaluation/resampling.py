"""Confidence intervals of recalls by bootstrap resampling of the test set.

The captions of one image are similar, and so are their ranks: five captions are not five independent trials. Resampling
single captions would therefore give intervals that are too narrow. Instead, whole images are drawn, each with all its
captions (the cluster bootstrap). Both directions use the same draws, so that intervals of sums over both are right too.

A draw of n images with replacement is a row of counts, and a resampled recall is the product of these counts with
per-image sums: a thousand resamples are one matrix product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from sightline.arrays import Float64Array, Int64Array
from sightline.errors import EvaluationError
from sightline.evaluation.metrics import CUTOFFS, Ranks

Interval = tuple[float, float]

RESAMPLES = 1000
# Draws per block: few enough to be counted within the CPU cache, which halves the time.
_BLOCK = 100_000
_ROUNDING = 1e-6  # resampled values that differ by less are the same


@dataclass(frozen=True, slots=True)
class Difference:
    """The gain in recall of the second system over the first, in points, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


_Z = 1.959964  # z-score of a 95 % interval


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion of `count` trials, in percent (Wilson 1927).

    >>> [round(end, 1) for end in wilson(0.5, 100)]
    [40.4, 59.6]
    """
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    reach = _Z / (1 + _Z**2 / count) * sqrt(share * (1 - share) / count + (_Z / (2 * count)) ** 2)
    return 100 * max(0.0, middle - reach), 100 * min(1.0, middle + reach)


def bootstrap_both(
    text_to_image: Ranks, caption_of: Int64Array, image_to_text: Ranks, query_of: Int64Array, *, seed: int
) -> dict[str, dict[str, Interval] | Interval]:
    """Return 95 % intervals of all recalls in both directions, of rSum and of mR, from the same draws of images.

    caption_of: [captions], the image of each caption; query_of: [image queries], the image of each query.

    """
    ways = {"text_to_image": (_hits(text_to_image), caption_of), "image_to_text": (_hits(image_to_text), query_of)}
    recalls = _resampled([*ways.values()], seed)
    counts = [len(np.unique(images)) for _, images in ways.values()]
    found: dict[str, dict[str, Interval] | Interval] = {
        way: _named(recalls[:, number], counts[number], (0, 100)) for number, way in enumerate(ways)
    }
    size = recalls[0].size
    low, high = _interval(recalls.sum(axis=(1, 2)), max(counts), (0, 100 * size))
    return {**found, "rSum": (low, high), "mR": (low / size, high / size)}


def paired_difference(
    ranks_a: Ranks, ranks_b: Ranks, clusters: Int64Array | None = None, *, seed: int
) -> dict[str, Difference]:
    """Return the gains in recall of system b over system a, on the same queries in the same order.

    Both are resampled with the same draws, so that whatever makes a draw easy or hard for both cancels out: the
    difference between two systems may be significant even if their own intervals overlap.
    """
    gain = _gain(ranks_a, ranks_b)
    images = np.arange(len(gain)) if clusters is None else clusters
    intervals = _named(_resampled([(gain, images)], seed)[:, 0], len(np.unique(images)), (-100, 100))
    values = 100 * gain.mean(axis=0)
    return {name: Difference(float(value), *intervals[name]) for value, name in zip(values, intervals, strict=True)}


def paired_gain(*directions: tuple[Ranks, Ranks, Int64Array], seed: int = 0) -> Difference:
    """Return the gain of system b over a in the sum of recalls; both directions are resampled by the same draws.

    directions: for each, the ranks of system a, those of system b for the same queries, and the image of each query.
    """
    gains = [(_gain(ranks_a, ranks_b), images) for ranks_a, ranks_b, images in directions]
    value = sum(100 * float(gain.mean(axis=0).sum()) for gain, _ in gains)
    most = 100.0 * len(CUTOFFS) * len(gains)
    count = max(len(np.unique(images)) for _, images in gains)
    return Difference(value, *_interval(_resampled(gains, seed).sum(axis=(1, 2)), count, (-most, most)))


def _hits(ranks: Ranks) -> Float64Array:
    """Return whether each query has a right answer at each cutoff, as 0 or 1: [queries, cutoffs]."""
    return np.stack([ranks <= k for k in CUTOFFS], axis=1).astype(np.float64)


def _gain(ranks_a: Ranks, ranks_b: Ranks) -> Float64Array:
    """Return the hits of system b minus those of a: [queries, cutoffs]."""
    if len(ranks_a) != len(ranks_b):
        raise EvaluationError(
            f"cannot compare {len(ranks_a)} ranks with {len(ranks_b)}", "Compare two systems on the same queries."
        )
    return _hits(ranks_b) - _hits(ranks_a)


def _resampled(directions: Sequence[tuple[Float64Array, Int64Array]], seed: int) -> Float64Array:
    """Compute recalls in percent, or their differences, for each draw of images: [RESAMPLES, directions, cutoffs].

    directions: for each, its hits [queries, cutoffs] and the image of each query. As many images are drawn as the test
    set has, with replacement.
    """
    for hits, images in directions:
        if not len(hits):
            raise EvaluationError("there are no queries to resample")
        if len(hits) != len(images):
            raise EvaluationError(f"there are {len(images)} image indices for {len(hits)} queries")
    clusters = np.unique(np.concatenate([images for _, images in directions]), return_inverse=True)[1]
    ends, count = np.cumsum([len(hits) for hits, _ in directions])[:-1], int(clusters.max()) + 1
    columns = []
    for (hits, _), members in zip(directions, np.split(clusters, ends), strict=True):
        columns += [np.bincount(members, weight, count) for weight in (*hits.T, np.ones(len(hits)))]
    sums = np.stack(columns, axis=1).astype(np.float32)
    random, step = np.random.default_rng(seed), max(1, _BLOCK // count)
    drawn = np.empty((RESAMPLES, len(columns)), dtype=np.float64)
    for start in range(0, RESAMPLES, step):
        rows = min(step, RESAMPLES - start)
        picks = random.integers(0, count, size=(rows, count), dtype=np.int32).astype(np.int64)
        picks += np.arange(rows)[:, None] * count
        counts = np.bincount(picks.ravel(), minlength=rows * count).reshape(rows, count)
        drawn[start : start + rows] = counts.astype(np.float32) @ sums
    by_direction = drawn.reshape(RESAMPLES, len(directions), -1)
    return 100 * by_direction[..., :-1] / by_direction[..., -1:]


def _named(recalls: Float64Array, count: int, limits: Interval) -> dict[str, Interval]:
    return {f"R@{k}": _interval(column, count, limits) for k, column in zip(CUTOFFS, recalls.T, strict=True)}


def _interval(values: Float64Array, count: int, limits: Interval) -> Interval:
    """Return the 95 % interval of resampled values, from a test set of `count` images.

    If all images have the same value, so has every resample, and resampling says nothing. Then Wilson's bound says how
    large a share of other images may differ; the interval assumes the lowest and the highest possible value for these.
    For a recall of 0 or 100 %, this is Wilson's interval.
    """
    low, high = (float(end) for end in np.quantile(values, [0.025, 0.975]))
    if np.ptp(values) > _ROUNDING:
        return low, high
    others = wilson(0.0, count)[1] / 100
    return low - others * (low - limits[0]), high + others * (limits[1] - high)
