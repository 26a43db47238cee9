"""Find the nearest items on a Milvus server, in an order that does not depend on the server."""

import numpy as np

from sightline.arrays import Float32Array
from sightline.stores.base import Neighbors
from sightline.stores.milvus_address import INDEXES, Address, Consistency
from sightline.stores.milvus_schema import EMBEDDING
from sightline.stores.milvus_server import Server
from sightline.stores.ranking import nothing

MOST = 16_384
"""The maximum number of results that Milvus returns."""

_MARGIN = 16  # extra results, to detect ties
_SLACK = 1e-5  # Milvus may order two cosines that differ by up to this either way


def nearest(
    server: Server, address: Address, queries: Float32Array, k: int, filter: str, consistency: Consistency
) -> Neighbors:
    """Find the k best items that pass a filter; fetch more results while the last one still ties with the k-th."""
    limit = min(k + _MARGIN, MOST)
    while True:
        found = _ranked(server, address, queries, limit, filter, consistency)
        is_all = found.ids[:, -1] < 0
        is_sure = found.scores[:, -1] < found.scores[:, k - 1] - _SLACK
        if limit == MOST or (is_all | is_sure).all():
            return Neighbors(found.ids[:, :k], found.scores[:, :k])
        limit = min(4 * limit, MOST)


def _ranked(
    server: Server, address: Address, queries: Float32Array, limit: int, filter: str, consistency: Consistency
) -> Neighbors:
    """Return the results of the server, reranked by cosines computed here."""
    index = INDEXES[address.index]
    answers = server.ask(
        lambda client: client.search(
            address.name,
            data=list(queries),
            filter=filter,
            limit=limit,
            output_fields=[EMBEDDING],
            search_params={"metric_type": "IP", "params": index.search(limit)},
            anns_field=EMBEDDING,
            consistency_level=consistency,
            timeout=server.timeout,
        )
    )
    found = nothing(len(queries), limit)
    for number, hits in enumerate(answers):
        ids = np.array([hit["id"] for hit in hits], dtype=np.int64)
        kept = np.array([hit["entity"][EMBEDDING] for hit in hits], dtype=np.float64)
        cosines = (kept.reshape(len(ids), queries.shape[1]) * queries[number]).sum(axis=1).astype(np.float32)
        order = np.lexsort((ids, -cosines))
        found.ids[number, : len(ids)], found.scores[number, : len(ids)] = ids[order], cosines[order]
    return found


def merged(one: Neighbors, other: Neighbors, k: int) -> Neighbors:
    """Return the k best of two results."""
    ids, scores = np.hstack([one.ids, other.ids]), np.hstack([one.scores, other.scores])
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return Neighbors(np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1))
