"""One bit a number: which of a million vectors are worth a closer look.

Two vectors that point the same way agree in the signs of most of their numbers. Signs take a thirty-second of the
space of float32, are compared 64 at a time, need no training, and therefore cannot go stale: the code of a vector
depends on that vector alone, however and in whatever order the others came.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from sightline.stores.base import Ids

Codes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

_WORD = 64  # bits that are compared at once; codes are padded to whole words
_SHARE = 100_000  # codes for which another thread pays
_THREADS = 8


def code_bytes(dim: int) -> int:
    """How many bytes the code of a vector of `dim` numbers takes."""
    return -(-dim // _WORD) * _WORD // 8


def sign_codes(vectors: npt.NDArray[np.floating]) -> Codes:
    """The signs of vectors [n, dim] as bits [n, bytes]: 1 for a positive number."""
    codes = np.zeros((len(vectors), code_bytes(vectors.shape[1])), dtype=np.uint8)
    bits = np.packbits(vectors > 0, axis=1)
    codes[:, : bits.shape[1]] = bits
    return codes


def nearest_codes(codes: Codes, query: Codes, want: int, allowed: Bools | None = None) -> Ids:
    """Rows [n] in ascending order whose codes differ least from `query` [bytes]: at least `want` of them.

    All rows with the last distance are among them, so that the answer depends on neither the order nor the number of
    threads. allowed: [rows], false for rows that are passed over; where fewer than `want` are true, all those are
    the answer.
    """
    distances = np.empty(len(codes), dtype=np.int32)
    farthest = 8 * codes.shape[1]

    def measure(some: slice) -> Ids:
        _count_differences(codes[some], query, distances[some])
        if allowed is not None:
            np.putmask(distances[some], ~allowed[some], farthest + 1)
        return np.bincount(distances[some], minlength=farthest + 2)

    at_distance = np.sum(_in_shares(measure, len(codes)), axis=0)
    limit = int(np.searchsorted(np.cumsum(at_distance), want))
    return np.flatnonzero(distances <= min(limit, farthest))


def _in_shares(measure: Callable[[slice], Ids], count: int) -> list[Ids]:
    """Measure rows 0 to `count` in one go where they are few, and otherwise shared out among threads."""
    threads = min(_THREADS, os.cpu_count() or 1, count // _SHARE)
    if threads <= 1:
        return [measure(slice(0, count))]
    ends = [count * share // threads for share in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(measure, map(slice, ends, ends[1:])))


def _count_differences(codes: Codes, query: Codes, out: npt.NDArray[np.int32]) -> None:
    """Write to `out` [n] in how many bits each of the codes [n, bytes] differs from the query."""
    import faiss

    pointers = [faiss.swig_ptr(array) for array in (np.ascontiguousarray(query), codes, out)]
    count = faiss.hammings  # type: ignore[attr-defined, unused-ignore]  # its stubs leave it out
    count(pointers[0], pointers[1], 1, len(codes), codes.shape[1], pointers[2])
