"""Find the nearest items in PostgreSQL: by comparing every vector, or with pgvector's HNSW index.

The server selects candidates. They are ranked here by the cosines of the stored embeddings, so that scores do not
depend on the server or its index.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.arrays import Float32Array
from sightline.stores.base import Neighbors
from sightline.stores.postgres_address import PostgresAddress
from sightline.stores.postgres_driver import run
from sightline.stores.postgres_server import PostgresServer
from sightline.stores.postgres_vectors import HalfVector, SingleVector
from sightline.stores.ranking import nothing

if TYPE_CHECKING:
    from sightline.stores.postgres_driver import Connection

_MARGIN = 16  # extra candidates, because servers round differently
_EFFORT, _MOST_EFFORT = 200, 1_000  # length of HNSW's candidate list; pgvector allows at most 1,000
_SETTINGS = {"jit": "off"}


def exact(
    server: PostgresServer, address: PostgresAddress, queries: Float32Array, k: int, where: str, values: Sequence[Any]
) -> Neighbors:
    """Return the k best items for each query [queries, dim] that pass a filter, by comparing all that do."""
    query = (
        f"SELECT i.id, i.embedding FROM {{items}} i WHERE {where} ORDER BY i.embedding::vector <#> %s, i.id LIMIT %s"
    )

    def call(connection: "Connection") -> list[list[tuple[Any, ...]]]:
        with connection.pipeline():
            asked = [[*values, SingleVector(vector), k + _MARGIN] for vector in queries]
            cursors = [run(connection, address, query, one, binary=True) for one in asked]
            return [cursor.fetchall() for cursor in cursors]

    found = nothing(len(queries), k)
    for number, rows in enumerate(server.read(call, _SETTINGS) if len(queries) else ()):
        _rank(found, number, rows, queries[number])
    return found


def nearest(
    server: PostgresServer, address: PostgresAddress, queries: Float32Array, k: int, where: str, values: Sequence[Any]
) -> Neighbors:
    """Return the k best items for each query [queries, dim], found with the index.

    If the index finds too few, or so many ties that the lowest ids among them are uncertain, all items that pass the
    filter are compared instead.
    """
    limit = k + _MARGIN
    if limit > _MOST_EFFORT:
        return exact(server, address, queries, k, where, values)
    query = f"SELECT i.id, i.embedding FROM {{items}} i WHERE {where} ORDER BY i.embedding <#> %s LIMIT %s"
    effort = min(max(_EFFORT, 2 * limit), _MOST_EFFORT)
    settings = {**_SETTINGS, "hnsw.ef_search": str(effort), "hnsw.iterative_scan": "relaxed_order"}

    def call(connection: "Connection") -> list[list[tuple[Any, ...]]]:
        with connection.pipeline():
            asked = [[*values, HalfVector(vector.astype(np.float16)), limit] for vector in queries]
            cursors = [run(connection, address, query, one, binary=True) for one in asked]
            return [cursor.fetchall() for cursor in cursors]

    found, unsure = nothing(len(queries), limit), []
    for number, rows in enumerate(server.read(call, settings) if len(queries) else ()):
        _rank(found, number, rows, queries[number])
        if len(rows) < limit or found.scores[number, k - 1] == found.scores[number, -1]:
            unsure.append(number)
    best = Neighbors(found.ids[:, :k], found.scores[:, :k])
    if unsure:
        again = exact(server, address, queries[unsure], k, where, values)
        best.ids[unsure], best.scores[unsure] = again
    return best


def _rank(found: Neighbors, number: int, rows: Sequence[tuple[Any, ...]], query: Float32Array) -> None:
    """Write the candidates of one query to the result, ranked by cosine and id."""
    if not rows:
        return
    ids = np.array([id for id, _ in rows], dtype=np.int64)
    stored = np.array([embedding for _, embedding in rows], dtype=np.float64)
    cosines = (stored * query).sum(axis=1).astype(np.float32)
    order = np.lexsort((ids, -cosines))[: found.ids.shape[1]]
    found.ids[number, : len(order)], found.scores[number, : len(order)] = ids[order], cosines[order]
