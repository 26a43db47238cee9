"""Late interaction over a store: a query's fragments against the stored fragments of some or all items."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from sightline.arrays import Float32Array, Float64Array, Int64Array
from sightline.bundle.encoded import Encoded
from sightline.errors import ModelError
from sightline.parallel import map_slices, usable_cpus
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.duplicates import folded
from sightline.retrieval.first_stage import EVERYTHING, MORE, MOST, Scope, Unwanted, blank_last, existing
from sightline.retrieval.maxsim import patches_with_texts, words_with_images
from sightline.retrieval.moments import best_of_each
from sightline.retrieval.query import EncodedQuery, ItemKind
from sightline.retrieval.relevance import LeastRelevance
from sightline.stores.base import Store

_AT_ONCE = 64  # items; a separate thread is worthwhile for so many
_WORDS = 12  # words in a typical text, and so the number of cosines in a late-interaction score


@dataclass(frozen=True, slots=True)
class LateScorer:
    """Scores items of a store by late interaction with a query.

    across: the part of the query whose modality is not that of the items. kind: the modality of the items.
    first: use only this many fragments of each side, counted from the first; None for all.
    """

    store: Store
    across: Encoded
    kind: ItemKind
    first: int | None = None

    @property
    def vectors(self) -> Float32Array:
        """The query's fragments [n, dim]."""
        if self.across.fragments is None:
            raise ModelError("the model returned no fragments", "Leave out `late`.")
        own: Float32Array = self.across.fragments[0][self.across.mask[0]][: self.first].astype(np.float32)
        return own

    @property
    def cosine_value(self) -> int:
        """How many points of a score correspond to a cosine of 1.0: one per word."""
        return len(self.vectors) if self.kind == "images" else _WORDS

    def scores(self, ids: Int64Array) -> Float32Array:
        """Score items by their ids [n], a few at a time, in several threads: [n]."""
        score = words_with_images if self.kind == "images" else patches_with_texts
        vectors = self.vectors

        def scores_of(some: slice) -> Float32Array:
            return score(vectors, self.store.rows(ids[some], "fragments", self.first))

        share = max(-(-len(ids) // usable_cpus()), _AT_ONCE)
        return np.concatenate(map_slices(scores_of, len(ids), min(share, 4 * _AT_ONCE)))


def rank_all(
    late: LateScorer, query: EncodedQuery, n: int, scope: Scope = EVERYTHING, least: LeastRelevance | None = None
) -> Candidates:
    """Find the n best of all items that are relevant enough, by late interaction instead of by embedding.

    Fragments are read a few items at a time, by as many threads as there are CPUs. The result does not depend on the
    number of threads, and memory use is little more than one score per item.
    """
    ids = late.store.ids() if scope.allowed is None else np.intersect1d(scope.allowed, late.store.ids())
    fit, beside, penalty = _judge_all(late, ids, query, Unwanted.of(query, late.store, scope.allowed))
    scores = fit + late.cosine_value * beside
    order = np.lexsort((ids, -scores))
    want = 2 * n if scope.fold or scope.moments else n
    while True:
        places = order[:want][existing(ids[order[:want]], scope.exists)]
        embeddings = late.store.fetch(ids[places], "embedding").values[:, 0]
        embed = (embeddings @ late.across.embedding[0]).astype(np.float64)
        relevant = np.arange(len(places)) if least is None else np.flatnonzero(least.keeps(ids[places], embed))
        firsts, are_videos = best_of_each(ids[places[relevant]], scope.moments)
        kept = relevant[firsts]
        places, embeddings, embed = places[kept], embeddings[kept], embed[kept]
        found = Candidates(
            ids[places], scores[places], fit[places], ("late",) * len(places), embed, beside[places], penalty[places]
        )
        folds = folded(found, embeddings, late.store, are_videos) if scope.fold else found
        candidates = blank_last(folds, scope.blank)
        if np.count_nonzero(~candidates.is_blank()) >= n or want >= min(len(order), MOST):
            return candidates.first(n)
        want *= MORE


def _judge_all(late: LateScorer, ids: Int64Array, query: EncodedQuery, unwanted: Unwanted | None) -> Float64Array:
    """Return the fit of items, the contribution of the rest of the query, and the penalty for unwanted content: [3, n].

    Computed in new threads, so that Ctrl-C, raised in the main thread, stops each after a few items.
    """

    def judge(few: Int64Array) -> Float64Array:
        fit = late.scores(few).astype(np.float64)
        beside, penalty = np.zeros(len(few)), np.zeros(len(few))
        if query.beside is not None or unwanted:
            embeddings = late.store.fetch(few, "embedding").values[:, 0]
            if query.beside is not None:
                beside = (embeddings @ query.beside).astype(np.float64)
            if unwanted:
                penalty = unwanted.shown_by(embeddings)
        return np.stack([fit - late.cosine_value * penalty, beside, penalty])

    parts = (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
    pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="sightline-late")
    try:
        judged = list(pool.map(judge, parts))
    finally:
        pool.shutdown(cancel_futures=True)
    return np.concatenate([np.empty((3, 0)), *judged], axis=1)
