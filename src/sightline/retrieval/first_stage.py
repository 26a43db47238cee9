"""The first stage: the items whose embeddings are nearest to the query's."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.duplicates import folded
from sightline.retrieval.moments import Moments, best_of_each
from sightline.retrieval.query import EncodedQuery
from sightline.retrieval.relevance import LeastRelevance
from sightline.stores.base import Neighbors, Store

Exists = Callable[[Sequence[int]], Container[int]]
"""Given ids, returns those whose items still exist; an item may be deleted during a search."""

Blank = Callable[[Sequence[int]], set[int]]
"""Given ids, returns those of blank images, which are ranked last."""

_SAMPLED = 256  # items sampled to estimate what is typical of a collection

MOST = 4_000
"""A search may return fewer distinct items than requested only after it has examined at least this many."""

MORE = 4
"""Factor by which the number of examined items grows while they are not enough."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which items a search may find, and which of them count as one.

    allowed: only these ids may be found. exists: drops items deleted since indexing. fold: no two results show the same
    image. blank: finds blank images, which are ranked last. moments: identifies moments of videos; only the best moment
    of each video is kept.
    """

    allowed: Int64Array | None = None
    exists: Exists | None = None
    fold: bool = False
    blank: Blank | None = None
    moments: Moments | None = None


EVERYTHING = Scope()


def retrieve(
    store: Store,
    query: EncodedQuery,
    n: int,
    scope: Scope = EVERYTHING,
    *,
    first: Neighbors | None = None,
    least: LeastRelevance | None = None,
) -> Candidates:
    """Find the n best items that are relevant enough.

    first: the store's results for `query` in the first round, if already known.

    If an item shows more unwanted content than is typical of the collection, its cosine is lowered by the difference.
    Scores are never raised, so once the n-th best score reaches the lowest cosine examined, no item further down can be
    better, and the result is exact.
    """
    unwanted = Unwanted.of(query, store, scope.allowed)
    want = _bounded(store, 2 * n if scope.fold or unwanted or scope.moments else n)
    while True:
        found, first = first or store.search(query.vector[None], want, scope.allowed), None
        ids, cosines = found.ids[0], found.scores[0].astype(np.float64)
        ids, cosines = ids[ids >= 0], cosines[ids >= 0]
        is_all = len(ids) < want
        lowest = -np.inf if is_all else cosines[-1]
        kept = existing(ids, scope.exists)
        candidates = _judged(store, query, ids[kept], cosines[kept], unwanted, scope, least)
        candidates = blank_last(candidates, scope.blank)
        sure = int(np.count_nonzero((candidates.scores >= lowest) & ~candidates.is_blank()))
        if is_all or sure >= n or want >= MOST or (least is not None and least.excludes(lowest)):
            return candidates.first(n)
        want *= MORE


def retrieve_together(
    store: Store,
    queries: Sequence[EncodedQuery],
    n: int,
    scope: Scope = EVERYTHING,
    leasts: Sequence[LeastRelevance | None] | None = None,
) -> list[Candidates]:
    """Find the same items as `retrieve` for many queries, reading each item only once.

    leasts: the least relevance of each query's results. Queries must not exclude unwanted content. `scope.exists` is
    called with the items of all queries at once.
    """
    want = _bounded(store, 2 * n if scope.fold or scope.moments else n)
    found = store.search(np.stack([query.vector for query in queries]), want, scope.allowed)
    if scope.exists is not None:
        scope.exists(sorted({id for id in found.ids.ravel().tolist() if id >= 0}))
    firsts = [Neighbors(found.ids[row, None], found.scores[row, None]) for row in range(len(queries))]
    return [
        retrieve(store, query, n, scope, first=first, least=least)
        for query, first, least in zip(queries, firsts, leasts or [None] * len(queries), strict=True)
    ]


def _bounded(store: Store, want: int) -> int:
    """Return how many items to request: hardly more than the store has, because it reserves memory for each.

    One more, so that a search that finds all items sees that there are no others.
    """
    return want if want <= MOST else min(want, store.stats().items + 1)


def blank_last(candidates: Candidates, blank: Blank | None) -> Candidates:
    """Move blank images behind the others, and record which ones are blank."""
    if blank is None:
        return candidates
    marked = replace(candidates, blank=frozenset(blank(candidates.ids.tolist())))
    return marked.taken(np.argsort(marked.is_blank(), kind="stable")) if marked.blank else marked


def existing(ids: Int64Array, exists: Exists | None) -> BoolArray:
    """Return which of these ids [n] still exist; all of them without `exists`."""
    if exists is None:
        return np.ones(len(ids), dtype=np.bool_)
    known = exists(ids.tolist())
    return np.array([id in known for id in ids.tolist()], dtype=np.bool_)


def _judged(
    store: Store,
    query: EncodedQuery,
    ids: Int64Array,
    cosines: Float64Array,
    unwanted: "Unwanted | None",
    scope: Scope,
    least: LeastRelevance | None,
) -> Candidates:
    """Score items by their cosines [n] and the rest of the query, sort them, and fold those showing the same image.

    Items that are not relevant enough are left out.
    """
    embed, beside, penalty = cosines, np.zeros(len(ids)), np.zeros(len(ids))
    embeddings = np.empty((len(ids), 0), dtype=np.float32)
    if scope.fold or unwanted or query.beside is not None:
        embeddings = store.fetch(ids, "embedding").values[:, 0]
    if query.beside is not None and query.across is not None:
        embed = (embeddings @ query.across.embedding[0]).astype(np.float64)
        beside = (embeddings @ query.beside).astype(np.float64)
    if unwanted:
        penalty = unwanted.shown_by(embeddings)
    scores = cosines - penalty
    candidates = Candidates(ids, scores, embed - penalty, ("embed",) * len(ids), embed, beside, penalty)
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[least.keeps(ids, embed)[order]]
    elif not scope.fold and not scope.moments and not (order[1:] < order[:-1]).any():
        return candidates
    places, are_videos = best_of_each(ids[order], scope.moments)
    kept = candidates.taken(order[places])
    return folded(kept, embeddings[order[places]], store, are_videos) if scope.fold else kept


@dataclass(frozen=True, slots=True)
class Unwanted:
    """Unwanted content as vectors [m, dim], and the collection's median cosine with each of them, [m]."""

    vectors: Float32Array
    typical: Float32Array

    @staticmethod
    def of(query: EncodedQuery, store: Store, allowed: Int64Array | None) -> "Unwanted | None":
        """Return a query's unwanted content, and how much of it is typical of the items; None if there is none."""
        if not len(query.without):
            return None
        ids = np.intersect1d(allowed, store.ids()) if allowed is not None else store.ids()
        sample = ids[:: max(1, len(ids) // _SAMPLED)]
        if not len(sample):
            return None
        cosines = store.fetch(sample, "embedding").values[:, 0] @ query.without.T
        return Unwanted(query.without, np.median(cosines, axis=0))

    def shown_by(self, embeddings: Float32Array) -> Float64Array:
        """Return how much more unwanted content the items [n, dim] show than is typical, summed over all of it: [n]."""
        excess = np.maximum(0, embeddings @ self.vectors.T - self.typical)
        total: Float64Array = excess.sum(axis=1, dtype=np.float64)
        return total
