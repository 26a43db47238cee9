"""The first stage: of all items, those whose embeddings are nearest to the query's."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.duplicates import folded
from sightline.retrieval.query import EncodedQuery
from sightline.stores.base import Neighbors, Store

Exists = Callable[[Sequence[int]], Container[int]]
"""Given ids, those of items that still exist; an item may be deleted while it is searched for."""

_SAMPLED = 256  # sampled items, to know what is typical of a collection

MOST = 4_000
"""Items that are looked at, at least, before there may be too few different ones."""

MORE = 4
"""Times as many are looked at where the first were not enough."""


def retrieve(
    store: Store,
    query: EncodedQuery,
    n: int,
    *,
    allowed: Int64Array | None = None,
    exists: Exists | None = None,
    fold: bool = False,
    blank: Exists | None = None,
    first: Neighbors | None = None,
) -> Candidates:
    """Find the n best items; with `fold`, the n best of which no two are the same image.

    allowed: only these ids may be found. exists: drops items deleted since indexing. blank: given ids, those of images
    that show nothing, which come after all others. first: what the store finds for
    `query`, as many as are looked at first, where that is known.

    What is not wanted takes from an item's cosine as much as it shows more of it than is typical of the collection.
    That never raises a score: so once the n-th best score reaches the lowest cosine that was looked at, no item
    further down can be better, and the answer is exact.
    """
    unwanted = Unwanted.of(query, store, allowed)
    want = wanted(n, fold or unwanted is not None)
    while True:
        found, first = first or store.search(query.vector[None], want, allowed), None
        ids, cosines = found.ids[0], found.scores[0].astype(np.float64)
        ids, cosines = ids[ids >= 0], cosines[ids >= 0]
        is_all = len(ids) < want
        lowest = -np.inf if is_all else cosines[-1]
        kept = existing(ids, exists)
        candidates = _judged(store, query, ids[kept], cosines[kept], unwanted, fold)
        shows = ~existing(candidates.ids, blank) if blank else np.ones(len(candidates), dtype=np.bool_)
        sure = int(np.count_nonzero((candidates.scores >= lowest) & shows))
        if is_all or sure >= n or want >= MOST:
            return candidates.taken(np.argsort(~shows, kind="stable")[:n])
        want *= MORE


def retrieve_together(
    store: Store,
    queries: Sequence[EncodedQuery],
    n: int,
    *,
    exists: Exists | None = None,
    fold: bool = False,
    blank: Exists | None = None,
) -> list[Candidates]:
    """Find for each of many queries what `retrieve` finds, while reading each item once.

    Nothing may be unwanted. exists: is called with the items of all queries at once.
    """
    found = store.search(np.stack([query.vector for query in queries]), wanted(n, fold))
    if exists is not None:
        exists(np.unique(found.ids[found.ids >= 0]).tolist())
    firsts = [Neighbors(found.ids[row, None], found.scores[row, None]) for row in range(len(queries))]
    pairs = zip(queries, firsts, strict=True)
    return [retrieve(store, query, n, exists=exists, fold=fold, blank=blank, first=first) for query, first in pairs]


def existing(ids: Int64Array, exists: Exists | None) -> BoolArray:
    """Which of some ids [n] still exist; all of them where nobody can tell."""
    if exists is None:
        return np.ones(len(ids), dtype=np.bool_)
    known = exists(ids.tolist())
    return np.array([id in known for id in ids.tolist()], dtype=np.bool_)


def wanted(n: int, some_may_go: bool) -> int:
    """How many items are looked at first, to find n."""
    return 2 * n if some_may_go else n


def _judged(
    store: Store,
    query: EncodedQuery,
    ids: Int64Array,
    cosines: Float64Array,
    unwanted: "Unwanted | None",
    fold: bool,
) -> Candidates:
    """Score items by their cosines [n] and the rest of the query, sort them, and fold those that look the same."""
    embed, beside, penalty = cosines, np.zeros(len(ids)), np.zeros(len(ids))
    embeddings = np.empty((len(ids), 0), dtype=np.float32)
    if fold or unwanted or query.beside is not None:
        embeddings = store.fetch(ids, "embedding").values[:, 0]
    if query.beside is not None and query.across is not None:
        embed = (embeddings @ query.across.embedding[0]).astype(np.float64)
        beside = (embeddings @ query.beside).astype(np.float64)
    if unwanted:
        penalty = unwanted.shown_by(embeddings)
    scores = cosines - penalty
    candidates = Candidates(ids, scores, embed - penalty, ("embed",) * len(ids), embed, beside, penalty)
    order = np.argsort(-scores, kind="stable")
    return folded(candidates.taken(order), embeddings[order], store) if fold else candidates.taken(order)


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What is not wanted, vectors [m, dim], and the cosine [m] with each that half of the collection exceeds."""

    vectors: Float32Array
    typical: Float32Array

    @staticmethod
    def of(query: EncodedQuery, store: Store, allowed: Int64Array | None) -> "Unwanted | None":
        """What a query does not want, and what is typical of the items that may be found; None for nothing."""
        if not len(query.without):
            return None
        ids = np.intersect1d(allowed, store.ids()) if allowed is not None else store.ids()
        sample = ids[:: max(1, len(ids) // _SAMPLED)]
        if not len(sample):
            return None
        cosines = store.fetch(sample, "embedding").values[:, 0] @ query.without.T
        return Unwanted(query.without, np.median(cosines, axis=0))

    def shown_by(self, embeddings: Float32Array) -> Float64Array:
        """How much more than typical items [n, dim] show of it, all of it together: [n]."""
        excess = np.maximum(0, embeddings @ self.vectors.T - self.typical)
        total: Float64Array = excess.sum(axis=1, dtype=np.float64)
        return total
