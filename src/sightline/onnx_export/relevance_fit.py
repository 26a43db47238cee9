"""Fitting the relevance of pairs to ground truth, and measuring how well calibrated it is on other data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.arrays import BoolArray, Float32Array, Float64Array, FloatArray
from sightline.bundle.relevance_formula import BIAS, FEATURES, PairRelevance, feature_rows, features
from sightline.bundle.words import Words
from sightline.errors import EvaluationError
from sightline.onnx_export.relevance_truth import SHOWN, UNKNOWN, QueryKind, TruthQuery

FITTED = 50
"""The number of images per query that relevance is fitted to: the best of those whose truth is known."""

BEST = 10
"""The number of best images per query on which the error is measured."""

COLLECTION, DRAWS = 300, 5
"""The size of the random collections used to choose the line, and how many are drawn for each query."""

TYPICAL, MOST = 4_000, 8.0
"""The collection size that relevance is fitted for, and the largest factor by which a fit scales its data up to it."""

_LONG, _RARE = 1.5, 6.0
"""How steeply the weight of wrong images rises with the length of a query, and with the rarity of its words."""

_NEARLY = 0.01  # accuracy this close to the best is as good
LINES = tuple(round(0.3 + 0.05 * step, 2) for step in range(9))
"""Lines (minimum relevance) to choose from; with a lower one, too many matches for common nouns would be wrong."""


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query and the images with known ground truth, best first: their cosines [n], and whether they match [n]."""

    text: str
    kind: QueryKind
    cosines: FloatArray
    shown: BoolArray


def judge(queries: Sequence[TruthQuery], texts: Float32Array, images: Float32Array) -> list[JudgedQuery]:
    """Rank the images [images, dim] for each query by their cosine with the query's embedding, texts [queries, dim]."""
    found = []
    for query, text in zip(queries, texts, strict=True):
        cosines = images @ text
        order = np.argsort(-cosines, kind="stable")
        known = order[query.truth[order] != UNKNOWN]
        shown = query.truth[known] == SHOWN
        found.append(JudgedQuery(query.text, query.kind, cosines[known], shown))
    return found


def fit_relevance(
    judged: Sequence[JudgedQuery], words: Words, *, line: float | None = None, data: Sequence[str] = ()
) -> PairRelevance:
    """Fit relevance by maximum likelihood to the best images of each query, with equal weight for every kind of query.

    A larger collection has more photos of dogs, but a sentence or a rare name still fits one photo, among more that
    resemble it. So wrong images count more for such queries, as if there were TYPICAL images (see `_wrong_weight`).

    line: the minimum relevance of a match; by default the threshold that best separates queries for which an image
    shows what is asked for from those for which none does.
    """
    rows = [feature_rows(query.text, query.cosines[:FITTED], words) for query in judged]
    truth = np.concatenate([query.shown[:FITTED] for query in judged]).astype(np.float64) if judged else np.zeros(0)
    if not 0 < truth.sum() < len(truth):
        raise EvaluationError(
            "calibration needs images that match a caption and images that do not",
            "Use data with more images and captions.",
        )
    pairs = {
        kind: sum(len(row) for row, one in zip(rows, judged, strict=True) if one.kind == kind)
        for kind in _kinds(judged)
    }
    counts = [len(row) for row in rows]
    share = np.repeat([1 / pairs[one.kind] for one in judged], counts)
    share *= np.where(truth > 0, 1.0, np.repeat([_wrong_weight(one, words) for one in judged], counts))
    weights = _logistic(np.concatenate(rows), truth, share * len(truth) / len(pairs))
    fitted = PairRelevance(dict(zip((*FEATURES, BIAS), weights.tolist(), strict=True)), 0.5, tuple(data))
    return replace(fitted, line=best_line(judged, fitted, words) if line is None else line)


def _wrong_weight(query: JudgedQuery, words: Words) -> float:
    """Return the weight of a wrong image: 1 for a common word, up to TYPICAL / images for sentences and rare words."""
    ratio = min(max(1.0, TYPICAL / len(query.cosines)), MOST) if len(query.cosines) else 1.0
    own = features(query.text, words)
    rare = (1 - own["familiarity"]) ** _RARE
    return float(ratio ** max(own["length"] ** _LONG, rare, own["number_share"] + own["colour_share"]))


def chances(query: JudgedQuery, fitted: PairRelevance, words: Words) -> Float64Array:
    """Return the relevance [n] of a query's images whose truth is known."""
    return fitted.of(query.text, query.cosines, words)


def top_pairs(
    judged: Iterable[JudgedQuery], fitted: PairRelevance, words: Words, k: int = BEST
) -> tuple[Float64Array, BoolArray]:
    """Return the relevance and the truth of the k best images of each query, queries concatenated."""
    pairs = [(chances(query, fitted, words)[:k], query.shown[:k]) for query in judged]
    if not pairs:
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    return np.concatenate([chance for chance, _ in pairs]), np.concatenate([shown for _, shown in pairs])


def top_error(judged: Iterable[JudgedQuery], fitted: PairRelevance, words: Words, k: int = BEST) -> float | None:
    """Return the calibration error, 0 to 1, among the k best images of each query; None if there are none."""
    stated, shown = top_pairs(judged, fitted, words, k)
    return calibration_error(stated, shown) if len(stated) else None


def calibration_error(chances: FloatArray, right: BoolArray, bins: int = 15) -> float:
    """Return the expected calibration error: the mean gap between stated probability and observed frequency, 0 to 1.

    Probabilities are put into bins of equal width; each bin is weighted by how many fall into it (Naeini et al. 2015).
    """
    chances, truth = np.asarray(chances).ravel(), np.asarray(right, dtype=np.float64).ravel()
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    gap = np.abs(np.bincount(place, chances, bins) - np.bincount(place, truth, bins))
    return float(gap.sum() / count.sum())


def best_chances(judged: Iterable[JudgedQuery], fitted: PairRelevance, words: Words) -> tuple[Float64Array, BoolArray]:
    """Return the relevance of the best image of each query, and whether any image shows what it asks for."""
    known = [query for query in judged if len(query.cosines)]
    best = np.array([chances(query, fitted, words)[0] for query in known])
    return best, np.array([query.shown.any() for query in known], dtype=np.bool_)


def balanced_accuracy(best: FloatArray, present: BoolArray, line: float) -> float | None:
    """Return the balanced accuracy of telling present from absent things by the best image; None unless there are both.

    best: the relevance of the best image of each query [n]. present: whether any image shows what it asks for [n].
    """
    if not 0 < present.sum() < len(present):
        return None
    return float(((best[present] >= line).mean() + (best[~present] < line).mean()) / 2)


def best_line(judged: Sequence[JudgedQuery], fitted: PairRelevance, words: Words) -> float:
    """Return the lowest threshold with the best balanced accuracy, averaged over the kinds of query.

    Small collections are drawn from the images whose truth is known, so that many things are present in only some of
    them. The threshold is 0.5 if no kind of query has things both present and absent.
    """
    rng = np.random.default_rng(0)
    drawn = [_drawn(query, rng) for query in judged for _ in range(DRAWS)]
    kinds = [best_chances(own, fitted, words) for own in by_kind(drawn).values()]
    accuracies = {line: [balanced_accuracy(best, present, line) for best, present in kinds] for line in LINES}
    found = {line: sum(filter(None, values)) for line, values in accuracies.items()}
    if not any(found.values()):
        return 0.5
    return min(line for line, value in found.items() if value >= max(found.values()) - _NEARLY * len(kinds))


def _drawn(query: JudgedQuery, rng: np.random.Generator) -> JudgedQuery:
    """Return the query with a random sample of its images."""
    count = len(query.cosines)
    places = np.sort(rng.choice(count, min(COLLECTION, count), replace=False))
    return replace(query, cosines=query.cosines[places], shown=query.shown[places])


def by_kind(judged: Iterable[JudgedQuery]) -> dict[QueryKind, list[JudgedQuery]]:
    """Group queries by their kind."""
    judged = list(judged)
    return {kind: [query for query in judged if query.kind == kind] for kind in _kinds(judged)}


def errors(judged: Iterable[JudgedQuery], fitted: PairRelevance, words: Words) -> Mapping[str, float]:
    """Return the calibration error among the best images, by kind of query."""
    found = {kind: top_error(own, fitted, words) for kind, own in by_kind(judged).items()}
    return {kind: error for kind, error in found.items() if error is not None}


def _kinds(judged: Iterable[JudgedQuery]) -> Iterator[QueryKind]:
    return iter(dict.fromkeys(query.kind for query in judged))


def _logistic(rows: Float64Array, truth: Float64Array, weights: Float64Array, steps: int = 100) -> Float64Array:
    """Return the weights [features] and bias of a logistic regression, by Newton's method.

    Features are scaled to zero mean and unit variance, so that any range converges; slight regularisation keeps the
    weights finite if pairs are perfectly separable, and the weight of a constant feature at zero.
    """
    middle, spread = rows.mean(axis=0), rows.std(axis=0)
    spread[spread < 1e-9] = 1.0
    scaled = np.concatenate([(rows - middle) / spread, np.ones((len(rows), 1))], axis=1)
    found = np.zeros(scaled.shape[1])
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(scaled @ found, -500, 500)))
        gradient = scaled.T @ (weights * (chance - truth)) + 1e-2 * found
        curvature = (scaled.T * (weights * chance * (1 - chance))) @ scaled + 1e-2 * np.eye(len(found))
        step = np.linalg.solve(curvature, gradient)
        found -= step
        if np.abs(step).max() < 1e-9:
            break
    slopes = found[:-1] / spread
    result: Float64Array = np.append(slopes, found[-1] - slopes @ middle)
    return result
