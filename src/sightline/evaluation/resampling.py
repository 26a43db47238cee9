"""Confidence intervals of recalls by bootstrap resampling of the test set.

The captions of one image are similar, and so are their ranks: five captions are not five independent trials. Resampling
single captions would therefore give intervals that are too narrow. Instead, whole images are drawn, each with all its
captions (the cluster bootstrap). Both directions use the same draws, so that intervals of sums over both are right too.

A draw of n images with replacement is a row of counts, and a resampled recall is the product of these counts with
per-image sums: a thousand resamples are one matrix product.
"""

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


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher the recall of the second system is than that of the first, in points, with its 95 % interval."""

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
    text_to_image: Ranks,
    caption_of: Int64Array,
    image_to_text: Ranks,
    query_of: Int64Array,
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, dict[str, Interval] | Interval]:
    """95 % intervals of all recalls of both directions, of rSum and of mR, from the same draws of images.

    caption_of: [captions], the image of each caption; query_of: [image queries], the image of each query.

    A recall of 0 or 100 % is the same in every resample, so its interval is Wilson's, with one trial per image.
    """
    members = _clusters(np.concatenate([caption_of, query_of]), len(text_to_image) + len(image_to_text))
    captions, queries = np.split(members, [len(text_to_image)])
    count = int(members.max()) + 1
    sums = np.hstack([_sums(text_to_image, captions, count), _sums(image_to_text, queries, count)])
    drawn = _resampled(sums, seed, resamples)
    half = drawn.shape[1] // 2
    first, second = (100 * part[:, :-1] / part[:, -1:] for part in (drawn[:, :half], drawn[:, half:]))
    total = first.sum(axis=1) + second.sum(axis=1)
    shares = sums.sum(axis=0)
    return {
        "text_to_image": _not_without_width(_named(first), shares[:half], len(np.unique(captions))),
        "image_to_text": _not_without_width(_named(second), shares[half:], len(np.unique(queries))),
        "rSum": _interval(total),
        "mR": _interval(total / (2 * len(CUTOFFS))),
    }


def _not_without_width(intervals: dict[str, Interval], hits: Float64Array, images: int) -> dict[str, Interval]:
    """Use Wilson's interval where all or none of the queries hit; hits: the hits at each cutoff, then all queries."""
    shares = hits[:-1] / hits[-1]
    return {
        name: wilson(float(share), images) if share in (0, 1) else interval
        for (name, interval), share in zip(intervals.items(), shares, strict=True)
    }


def paired_difference(
    ranks_a: Ranks, ranks_b: Ranks, clusters: Int64Array | None = None, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, Difference]:
    """How much higher the recalls of system b are than those of a, on the same queries in the same order.

    Both are resampled with the same draws, so that whatever makes a draw easy or hard for both cancels out: the
    difference between two systems may be significant even if their own intervals overlap.
    """
    if len(ranks_a) != len(ranks_b):
        raise EvaluationError(f"{len(ranks_a)} and {len(ranks_b)} ranks", "Compare two systems on the same queries.")
    members = _clusters(clusters, len(ranks_a))
    gain, size = _sums(ranks_b, members) - _sums(ranks_a, members), _sums(ranks_a, members)[:, -1:]
    drawn = _resampled(np.hstack([gain[:, :-1], size]), seed, resamples)
    differences = 100 * drawn[:, :-1] / drawn[:, -1:]
    values = 100 * gain[:, :-1].sum(axis=0) / len(ranks_a)
    return {
        name: Difference(float(value), *interval)
        for value, (name, interval) in zip(values, _named(differences).items(), strict=True)
    }


def paired_gain(*directions: tuple[Ranks, Ranks, Int64Array], seed: int = 0) -> Difference:
    """How much higher the sum of system b's recalls is than that of a; both directions are resampled by the same draws.

    directions: for each, the ranks of system a, those of system b for the same queries, and the image of each query.
    """
    clusters = _clusters(np.concatenate([images for *_, images in directions]), sum(len(a) for a, *_ in directions))
    ends = np.cumsum([len(a) for a, *_ in directions])[:-1]
    parts, count = [], int(clusters.max()) + 1
    for (ranks_a, ranks_b, _), members in zip(directions, np.split(clusters, ends), strict=True):
        before, after = _sums(ranks_a, members, count), _sums(ranks_b, members, count)
        parts.append(np.stack([(after - before)[:, :-1].sum(axis=1), before[:, -1]], axis=1))
    sums = np.hstack(parts)

    def total(drawn: Float64Array) -> Float64Array:
        gains: Float64Array = 100 * (drawn[:, ::2] / drawn[:, 1::2]).sum(axis=1)
        return gains

    return Difference(float(total(sums.sum(axis=0, keepdims=True))[0]), *_interval(total(_resampled(sums, seed))))


def _clusters(clusters: Int64Array | None, queries: int) -> Int64Array:
    """Renumber the clusters from 0 without gaps, so that every cluster has queries."""
    if not queries:
        raise EvaluationError("no queries to resample")
    if clusters is None:
        return np.arange(queries)
    if len(clusters) != queries:
        raise EvaluationError(f"{len(clusters)} cluster numbers for {queries} queries")
    return np.unique(clusters, return_inverse=True)[1].astype(np.int64)


def _sums(ranks: Ranks, members: Int64Array, count: int | None = None) -> Float64Array:
    """The hits at each cutoff and the number of queries in each cluster: [clusters, cutoffs + 1]."""
    length = count or int(members.max()) + 1
    weights = [*((ranks <= k).astype(np.float64) for k in CUTOFFS), np.ones(len(ranks))]
    return np.stack([np.bincount(members, weight, length) for weight in weights], axis=1)


def _resampled(sums: Float64Array, seed: int, resamples: int = RESAMPLES) -> Float64Array:
    """Draw as many clusters as there are, with replacement, and add up their rows of `sums`: [resamples, columns]."""
    clusters = len(sums)
    random = np.random.default_rng(seed)
    single = sums.astype(np.float32)
    drawn = np.empty((resamples, sums.shape[1]), dtype=np.float64)
    step = max(1, _BLOCK // clusters)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        picks = random.integers(0, clusters, size=(rows, clusters), dtype=np.int32).astype(np.int64)
        picks += np.arange(rows)[:, None] * clusters
        counts = np.bincount(picks.ravel(), minlength=rows * clusters).reshape(rows, clusters)
        drawn[start : start + rows] = counts.astype(np.float32) @ single
    return drawn


def _named(recalls: Float64Array) -> dict[str, Interval]:
    return {f"R@{k}": _interval(column) for k, column in zip(CUTOFFS, recalls.T, strict=True)}


def _interval(values: Float64Array) -> Interval:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
