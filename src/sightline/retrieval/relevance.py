"""The relevance of results: of each query-item pair by itself or, in older bundles, relative to the whole gallery."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sightline.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from sightline.bundle.model import Calibration
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.words import Words
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.fusion import sigmoid
from sightline.retrieval.query import EncodedQuery
from sightline.stores.base import Store


def relevance(scores: FloatArray, calibration: Calibration, items: int | None = None) -> Float64Array:
    """Return the probability that the item with each score is the one that was meant, among `items` items.

    If there are ten times as many items as the calibration was fitted on, ten times as many wrong items score as high,
    so the odds are a tenth. `items` defaults to the number that the calibration was fitted on.

    >>> fitted = Calibration(scale=1.0, bias=0.0, items=1001)
    >>> [round(float(relevance(np.array([0.0]), fitted, items)[0]), 2) for items in (101, 1001, 10001)]
    [0.91, 0.5, 0.09]
    """
    logits = calibration.scale * np.asarray(scores, dtype=np.float64) + calibration.bias
    if items is not None and calibration.items is not None:
        logits += np.log((max(calibration.items, 2) - 1) / (max(items, 2) - 1))
    return sigmoid(logits)


@dataclass(slots=True)
class LeastRelevance:
    """The least relevance that a result may have: the first stage looks further down for as many as it should find.

    of: returns the relevance of items by their ids [n] and cosines [n]. highest: returns the highest relevance that an
    item with at most this cosine may have. best: the highest relevance seen so far.
    """

    least: float
    of: Callable[[Int64Array, Float64Array], Float64Array]
    highest: Callable[[float], float]
    best: float | None = None

    def keeps(self, ids: Int64Array, cosines: Float64Array) -> BoolArray:
        """Return which of these items [n] are relevant enough."""
        relevances = self.of(ids, cosines)
        if len(ids):
            self.best = max(self.best or 0.0, float(relevances.max()))
        return relevances >= self.least

    def excludes(self, cosine: float) -> bool:
        """Return whether no item with at most this cosine is relevant enough."""
        return self.highest(cosine) < self.least


def pair_relevances(
    query: EncodedQuery, ids: Int64Array, cosines: Float64Array, fitted: PairRelevance, words: Words, store: Store
) -> Float64Array:
    """Return the probability that each item [n] shows what a text asks for, and nothing unwanted.

    It depends only on the pair, not on other items, other results, filters or stages. cosines: with the text, [n].
    """
    chances = fitted.of(query.text, cosines, words)
    if query.unwanted and len(ids):
        embeddings = store.fetch(ids, "embedding").values[:, 0]
        for text, vector in zip(query.unwanted, query.without, strict=True):
            chances *= 1 - fitted.of(text, embeddings @ vector, words)
    return chances


def gallery_relevances(
    candidates: Candidates, calibrations: Mapping[str, Calibration], items: int | None = None
) -> Float64Array | None:
    """Return the relevance of each candidate [n] from the last stage that scored it; None without calibrations.

    If that stage has no calibration, the score of the first stage is used. items: the number of items in the gallery.

    Stages differ in their confidence, so a result could appear more relevant than the one above it. The relevance of
    each result is therefore limited to that of the one above.
    """
    if "embed" not in calibrations:
        return None
    chances = relevance(candidates.embed - candidates.penalty, calibrations["embed"], items)
    for place, stage in enumerate(candidates.stages):
        if stage != "embed" and stage in calibrations:
            chances[place] = relevance(candidates.fit[place : place + 1], calibrations[stage], items)[0]
    return np.minimum.accumulate(chances)
