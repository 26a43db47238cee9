"""Find the best float16 vectors for a query with FAISS, which compares them where they are.

NumPy first converts them to float32, which takes several times as long, on some processors ten times.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sightline.arrays import Float16Array, Float32Array
from sightline.parallel import map_slices, usable_cpus
from sightline.stores.base import Ids

SLACK = 1e-5
"""How much a score in float32 may differ from the exact cosine."""

_SPARE = 16  # results beyond k, in case several are about as good as the last
_PIECE = 4_096  # a separate thread is worthwhile to compare this many vectors
_WORTH_IMPORTING = 300_000  # vectors that NumPy compares in about the time that importing FAISS takes
_lock = threading.Lock()
_compared = 0


def is_worthwhile(vectors: int) -> bool:
    """Return whether to compare this many vectors with FAISS: if it has been imported, or soon pays for the import.

    A command that searches a small collection once is faster without; a server is not.
    """
    global _compared
    if "faiss" in sys.modules:
        return True
    with _lock:
        _compared += vectors
        return _compared > _WORTH_IMPORTING


def best_places(vectors: Float16Array, query: Float32Array, k: int) -> Ids | None:
    """Return the places of the k best vectors [n, dim] for a query [dim], and of all others with about the same score.

    None if too many vectors score about the same. Vectors must be contiguous, and more than k.
    """

    def best(piece: slice) -> tuple[Ids, Float32Array, bool]:
        count = min(k + _SPARE, piece.stop - piece.start)
        with _one_thread():
            scores, places = _index(vectors[piece]).search(query[None], count)
        return places[0] + piece.start, scores[0], count == piece.stop - piece.start

    found = map_slices(best, len(vectors), max(_PIECE, -(-len(vectors) // usable_cpus())))
    scores = np.concatenate([some for _, some, _ in found])
    least = np.partition(scores, len(scores) - k)[len(scores) - k] - SLACK
    if any(not is_all and some[-1] >= least for _, some, is_all in found):
        return None
    chosen: Ids = np.concatenate([places for places, _, _ in found])[scores >= least]
    return np.sort(chosen)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep FAISS from starting threads of its own for the calling thread: it would even for one query."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _index(vectors: Float16Array) -> Any:
    """Return a FAISS index that reads these vectors; it must not outlive them."""
    import faiss

    made: Any = faiss.IndexScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    owner = made.codes.owner  # null: FAISS is not to free the vectors
    codes: Any = faiss.MaybeOwnedVectorUInt8  # type: ignore[attr-defined, unused-ignore]  # its stubs leave it out
    made.codes = codes.create_view(faiss.swig_ptr(vectors.view(np.uint8)), vectors.nbytes, owner)
    made.is_trained, made.ntotal = True, len(vectors)
    return made
