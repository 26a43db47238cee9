"""Find items similar to a stored item, by its embedding."""

from collections.abc import Mapping, Sequence

import numpy as np

from sightline.arrays import Float32Array
from sightline.collection import Collection, Item
from sightline.collection.catalog.hits import hits_of
from sightline.collection.group import GroupHit, merge
from sightline.errors import StoreError
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.cascade import Ranking
from sightline.retrieval.costs import search_stopwatch
from sightline.retrieval.first_stage import Scope, retrieve
from sightline.retrieval.moments import with_moments
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import EncodedQuery, Query
from sightline.retrieval.results import Hit, SearchResult
from sightline.server.problems import not_found


def similar(collections: Sequence[Collection], member: int, id: int, k: int) -> tuple[list[GroupHit], dict[str, float]]:
    """Find the k items most similar to an item in all collections, without its duplicates; also return the time.

    member: the position of the item's collection in `collections`.
    """
    watch = search_stopwatch()
    with watch("retrieve"):
        vector = _embedding(collections[member], id)
        query = EncodedQuery(vector, across=None, beside=None, without=np.empty((0, len(vector)), np.float32))
        results = [
            SearchResult(Query(), _nearest(collection, query, id if place == member else 0, k))
            for place, collection in enumerate(collections)
        ]
    return list(merge(results, SearchOptions(k=k)).hits), watch.milliseconds


def _nearest(collection: Collection, query: EncodedQuery, id: int, k: int) -> tuple[Hit, ...]:
    found: dict[int, Item] = {}

    def exists(ids: Sequence[int]) -> dict[int, Item]:
        found.update(collection.items(ids))
        return found

    moments = collection.catalog.moments() if collection.kind == "images" else None
    scope = Scope(exists=exists, fold=collection.kind == "images", moments=moments)
    nearest = retrieve(collection.store, query, k + 1, scope)
    videos = moments.videos(nearest.ids.tolist()) if moments else {}
    others = with_moments(_without(nearest, id, videos), k, query, collection.store, moments)
    return hits_of(Ranking(others, None, {}), min(k, len(others)), found)


def _embedding(collection: Collection, id: int) -> Float32Array:
    if id not in collection.items([id]):
        raise not_found(id)
    moments = collection.catalog.moments() if collection.kind == "images" else None
    own = list(moments.of([id]).get(id, {})) if moments else []
    try:
        found = collection.store.fetch(np.array(own or [id], dtype=np.int64), "embedding")
    except StoreError as error:  # deleted, or not yet searchable
        raise not_found(id) from error
    if not own:
        return found.values[0, 0]  # type: ignore[no-any-return]
    mean = found.values[:, 0].mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-6)  # type: ignore[no-any-return]


def _without(candidates: Candidates, id: int, videos: Mapping[int, int]) -> Candidates:
    """Remove the item with this id, or the duplicate that it is folded into, from the candidates.

    videos: the video that each moment belongs to, by id.
    """
    leaders = candidates.ids.tolist()
    kept = [
        place for place, one in enumerate(leaders) if id not in (videos.get(one, one), *candidates.folded.get(one, ()))
    ]
    return candidates.taken(np.array(kept, dtype=np.int64))
