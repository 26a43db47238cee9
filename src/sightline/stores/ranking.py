"""Exact top k by cosine; scores do not depend on batching, threads or row order."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from sightline.arrays import Float16Array, Float32Array
from sightline.parallel import map_slices
from sightline.stores.base import Ids, Neighbors
from sightline.stores.float16_scan import SLACK, best_places, is_worthwhile

_BLOCK = 512  # rows converted to float32 at once; a megabyte fits the CPU cache
_PIECE = 262_144  # a separate thread is worthwhile to convert this many numbers
_SCORES = 4_000_000  # scores held in memory at once
_FEW_QUERIES = 8  # for more, one matrix product takes less time


def nothing(queries: int, k: int) -> Neighbors:
    """Return an empty result."""
    return Neighbors(np.full((queries, k), -1, dtype=np.int64), np.full((queries, k), -np.inf, dtype=np.float32))


def top_k_rows(embeddings: Float16Array, row_ids: Ids, rows: Ids, queries: Float32Array, k: int) -> Neighbors:
    """Compare queries [queries, dim] with some rows [n] of the embeddings [rows, dim], and keep the k best.

    Rows must be unique and in ascending order, and vectors of unit length. Ties are ordered by id, lowest first.
    """
    found = nothing(len(queries), k)
    if not len(rows):
        return found
    step = max(1, _SCORES // len(rows))
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        for number, near in enumerate(_near(embeddings, rows, some, k), start):
            cosines = _cosines(embeddings, near, queries[number])
            order = np.lexsort((row_ids[near], -cosines))[:k]
            found.ids[number, : len(order)] = row_ids[near[order]]
            found.scores[number, : len(order)] = cosines[order]
    return found


def _near(embeddings: Float16Array, rows: Ids, queries: Float32Array, k: int) -> Iterator[Ids]:
    """For each query, yield the k best rows, and all others with about the same score."""
    if len(rows) <= k:
        yield from repeat(rows, len(queries))
    elif len(queries) <= _FEW_QUERIES and is_worthwhile(len(rows) * len(queries)):
        vectors = _take(embeddings, rows)
        for number, query in enumerate(queries):
            places = best_places(vectors, query, k)
            if places is None:
                yield from _near_by_products(embeddings, rows, queries[number : number + 1], k)
            else:
                yield rows[places]
    else:
        yield from _near_by_products(embeddings, rows, queries, k)


def _near_by_products(embeddings: Float16Array, rows: Ids, queries: Float32Array, k: int) -> Iterator[Ids]:
    for scores in _products(embeddings, rows, queries):
        yield rows[scores >= _kth(scores, k) - SLACK]


def _kth(scores: Float32Array, k: int) -> np.float32:
    place = len(scores) - k
    kth: np.float32 = np.partition(scores, place)[place]
    return kth


def _products(embeddings: Float16Array, rows: Ids, queries: Float32Array) -> Float32Array:
    """Products [queries, n] by matrix multiplication: fast, but the last digit depends on a row's position in a block.

    Equal vectors may get different scores, so these are used only to select candidates.
    """
    products = np.empty((len(queries), len(rows)), dtype=np.float32)

    def multiply(some: slice) -> None:
        products[:, some] = queries @ _take(embeddings, rows[some]).astype(np.float32).T

    if len(queries) == 1:
        map_slices(multiply, len(rows), max(_BLOCK, _PIECE // queries.shape[1]))
    else:  # the matrix product itself uses all cores
        for some in _blocks(len(rows)):
            multiply(some)
    return products


def _cosines(embeddings: Float16Array, rows: Ids, query: Float32Array) -> Float32Array:
    """Return the cosines [n] to one query; they do not depend on the position of a row."""
    cosines = np.empty(len(rows), dtype=np.float32)
    for some in _blocks(len(rows)):
        cosines[some] = (embeddings[rows[some]] * query.astype(np.float64)).sum(axis=1)
    return cosines


def _take(embeddings: Float16Array, rows: Ids) -> Float16Array:
    """Select unique rows in ascending order; a contiguous range is not copied."""
    first, last = rows[0], rows[-1] + 1
    return embeddings[first:last] if last - first == len(rows) else embeddings[rows]


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))
