"""Sign codes: one bit per dimension, to select candidates among millions of vectors.

Similar vectors have the same sign in most dimensions. Codes take 1/32 of the space of float32 and are compared 64
bits at a time. They need no training: a code depends only on its own vector.
"""

import numpy as np
import numpy.typing as npt

from sightline.arrays import BoolArray, Int32Array
from sightline.parallel import map_slices
from sightline.stores.base import Ids

Codes = npt.NDArray[np.uint8]

_WORD = 64  # bits compared at once; codes are padded to whole words
_PIECE = 65_536  # codes compared at once, so that their distances stay in the CPU cache
_SAMPLE = 8_192  # codes sampled to estimate a limit; with fewer than four times as many codes, there is no estimate


def code_bytes(dim: int) -> int:
    """Return the size in bytes of the code of a vector with `dim` dimensions."""
    return -(-dim // _WORD) * _WORD // 8


def sign_codes(vectors: npt.NDArray[np.floating]) -> Codes:
    """Return the signs of vectors [n, dim] as bits [n, bytes]: 1 for a positive number."""
    codes = np.zeros((len(vectors), code_bytes(vectors.shape[1])), dtype=np.uint8)
    bits = np.packbits(vectors > 0, axis=1)
    codes[:, : bits.shape[1]] = bits
    return codes


def nearest_codes(codes: Codes, query: Codes, want: int, allowed: BoolArray | None = None) -> Ids:
    """Return the rows [n], in ascending order, of at least `want` codes with the smallest distance to `query` [bytes].

    All rows tied at the largest distance are included, so the result does not depend on the order or number of threads.
    allowed: [rows], False for rows to exclude; if fewer than `want` are True, all of those are returned.
    """
    guess = _guessed_limit(codes, query, want, allowed)
    rows, distances = _within(guess, codes, query, allowed)
    if len(rows) < want and guess < _farthest(codes):  # the estimate was too low
        rows, distances = _within(_farthest(codes), codes, query, allowed)
    limit = np.searchsorted(np.cumsum(np.bincount(distances)), want)
    return rows[distances <= limit]


def _farthest(codes: Codes) -> int:
    bits: int = 8 * codes.shape[1]
    return bits


def _guessed_limit(codes: Codes, query: Codes, want: int, allowed: BoolArray | None) -> int:
    """Estimate, from a sample, a distance within which slightly more than `want` codes lie.

    It only limits how many codes are kept during the comparison and does not affect the result: sorting all distances
    would take half as long as comparing the codes.
    """
    step = len(codes) // _SAMPLE
    if step < 4:
        return _farthest(codes)
    rows = np.arange(0, len(codes), step)
    rows = rows if allowed is None else rows[allowed[rows]]
    total = len(codes) if allowed is None else np.count_nonzero(allowed)
    place = int(1.5 * want * len(rows) / max(total, 1)) + 8  # with a margin for sampling error
    if place >= len(rows):
        return _farthest(codes)
    return int(np.partition(_differences(np.take(codes, rows, axis=0), query), place)[place])


def _within(limit: int, codes: Codes, query: Codes, allowed: BoolArray | None) -> tuple[Ids, Int32Array]:
    """Return the allowed rows [n] within `limit` bits of the query, in ascending order, and their distances [n]."""

    def near(piece: slice) -> tuple[Ids, Int32Array]:
        distances = _differences(codes[piece], query)
        rows = np.flatnonzero(distances <= limit)
        rows = rows if allowed is None else rows[allowed[piece][rows]]
        return rows + piece.start, distances[rows]

    found = map_slices(near, len(codes), _PIECE)
    return np.concatenate([rows for rows, _ in found]), np.concatenate([distances for _, distances in found])


def _differences(codes: Codes, query: Codes) -> Int32Array:
    """Return the Hamming distances between the codes [n, bytes] and the query [bytes]."""
    import faiss

    found = np.empty(len(codes), dtype=np.int32)
    pointers = [faiss.swig_ptr(array) for array in (np.ascontiguousarray(query), codes, found)]
    count = faiss.hammings  # type: ignore[attr-defined, unused-ignore]  # its stubs leave it out
    count(pointers[0], pointers[1], 1, len(codes), codes.shape[1], pointers[2])
    return found
