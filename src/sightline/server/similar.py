"""Find items similar to a stored item, by its embedding."""

from collections.abc import Sequence

import numpy as np

from sightline.arrays import Float32Array
from sightline.collection import Collection, Item
from sightline.collection.catalog.hits import hits_of
from sightline.errors import StoreError
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.cascade import Ranking
from sightline.retrieval.costs import search_stopwatch
from sightline.retrieval.first_stage import retrieve
from sightline.retrieval.query import EncodedQuery
from sightline.retrieval.results import Hit
from sightline.server.problems import not_found


def similar(collection: Collection, id: int, k: int) -> tuple[tuple[Hit, ...], dict[str, float]]:
    """The k items most similar to an item, excluding it and its duplicates, and the time taken."""
    watch = search_stopwatch()
    found: dict[int, Item] = {}

    def exists(ids: Sequence[int]) -> dict[int, Item]:
        found.update(collection.items(ids))
        return found

    with watch("retrieve"):
        vector = _embedding(collection, id)
        query = EncodedQuery(vector, across=None, beside=None, without=np.empty((0, len(vector)), np.float32))
        fold = collection.kind == "images"
        nearest = retrieve(collection.store, query, k + 1, exists=exists, fold=fold)
        others = _without(nearest, id)
    count = min(k, len(others))
    return hits_of(collection.catalog, Ranking(others, None, watch.milliseconds), count, found), watch.milliseconds


def _embedding(collection: Collection, id: int) -> Float32Array:
    if id not in collection.items([id]):
        raise not_found(id)
    try:
        found = collection.store.fetch(np.array([id], dtype=np.int64), "embedding")
    except StoreError as error:  # deleted, or not yet searchable
        raise not_found(id) from error
    embedding: Float32Array = found.values[0, 0]
    return embedding


def _without(candidates: Candidates, id: int) -> Candidates:
    """All candidates except the item with this id, or the one it is folded into."""
    leaders = candidates.ids.tolist()
    kept = [place for place, one in enumerate(leaders) if id not in (one, *candidates.folded.get(one, ()))]
    return candidates.taken(np.array(kept, dtype=np.int64))
