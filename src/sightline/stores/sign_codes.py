"""Sign codes: one bit per dimension, to choose candidates among millions of vectors.

Similar vectors agree in the signs of most of their numbers. Codes take 1/32 of the space of float32 and are compared 64
bits at a time. They need no training: a code depends only on its own vector.
"""

import numpy as np
import numpy.typing as npt

from sightline.arrays import BoolArray, Int32Array
from sightline.parallel import map_slices
from sightline.stores.base import Ids

Codes = npt.NDArray[np.uint8]

_WORD = 64  # bits that are compared at once; codes are padded to whole words
_PIECE = 65_536  # codes that are compared at once: their distances stay in the processor's cache
_SAMPLE = 8_192  # codes by which a limit is guessed; among fewer than four times as many, none is


def code_bytes(dim: int) -> int:
    """Bytes in the code of a vector of `dim` numbers."""
    return -(-dim // _WORD) * _WORD // 8


def sign_codes(vectors: npt.NDArray[np.floating]) -> Codes:
    """The signs of vectors [n, dim] as bits [n, bytes]: 1 for a positive number."""
    codes = np.zeros((len(vectors), code_bytes(vectors.shape[1])), dtype=np.uint8)
    bits = np.packbits(vectors > 0, axis=1)
    codes[:, : bits.shape[1]] = bits
    return codes


def nearest_codes(codes: Codes, query: Codes, want: int, allowed: BoolArray | None = None) -> Ids:
    """Rows [n] in ascending order whose codes differ least from `query` [bytes]: at least `want` of them.

    All rows at the largest distance are included, so the result does not depend on the order or number of threads.
    allowed: [rows], false for rows to leave out; if fewer than `want` are true, all of those are returned.
    """
    guess = _guessed_limit(codes, query, want, allowed)
    rows, distances = _within(guess, codes, query, allowed)
    if len(rows) < want and guess < _farthest(codes):  # the sample misled
        rows, distances = _within(_farthest(codes), codes, query, allowed)
    limit = np.searchsorted(np.cumsum(np.bincount(distances)), want)
    return rows[distances <= limit]


def _farthest(codes: Codes) -> int:
    bits: int = 8 * codes.shape[1]
    return bits


def _guessed_limit(codes: Codes, query: Codes, want: int, allowed: BoolArray | None) -> int:
    """A distance within which, judging by a sample, there are a few more than `want` codes.

    It only limits what is kept while codes are compared, not the result: sorting all distances would take half as long
    as comparing the codes.
    """
    step = len(codes) // _SAMPLE
    if step < 4:
        return _farthest(codes)
    rows = np.arange(0, len(codes), step)
    rows = rows if allowed is None else rows[allowed[rows]]
    total = len(codes) if allowed is None else np.count_nonzero(allowed)
    place = int(1.5 * want * len(rows) / max(total, 1)) + 8  # with a margin for the error of the sample
    if place >= len(rows):
        return _farthest(codes)
    return int(np.partition(_differences(np.take(codes, rows, axis=0), query), place)[place])


def _within(limit: int, codes: Codes, query: Codes, allowed: BoolArray | None) -> tuple[Ids, Int32Array]:
    """Allowed rows [n], in ascending order, within `limit` bits of the query; and their distances [n]."""

    def near(piece: slice) -> tuple[Ids, Int32Array]:
        distances = _differences(codes[piece], query)
        rows = np.flatnonzero(distances <= limit)
        rows = rows if allowed is None else rows[allowed[piece][rows]]
        return rows + piece.start, distances[rows]

    found = map_slices(near, len(codes), _PIECE)
    return np.concatenate([rows for rows, _ in found]), np.concatenate([distances for _, distances in found])


def _differences(codes: Codes, query: Codes) -> Int32Array:
    """Hamming distance of each of the codes [n, bytes] to the query [bytes]."""
    import faiss

    found = np.empty(len(codes), dtype=np.int32)
    pointers = [faiss.swig_ptr(array) for array in (np.ascontiguousarray(query), codes, found)]
    count = faiss.hammings  # type: ignore[attr-defined, unused-ignore]  # its stubs leave it out
    count(pointers[0], pointers[1], 1, len(codes), codes.shape[1], pointers[2])
    return found
