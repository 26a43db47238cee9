"""A copy of a local store's embeddings on a GPU, which is searched exactly.

Stores that have the same file open share one copy. If the file has grown when a store is opened or refreshed, as in a
server whose collection is being indexed, only the new rows are sent.
"""

import logging
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from sightline.arrays import Float16Array, Float32Array
from sightline.errors import StoreError
from sightline.stores.base import Ids, Neighbors
from sightline.stores.generation import Generation
from sightline.stores.row_index import RowIndex

if TYPE_CHECKING:
    from torch import Tensor

    from sightline.kernels.scan import Dtype, Scan

_log = logging.getLogger(__name__)

DEVICE = "cuda"
INT8_ROWS = 1_000_000
"""Rows from which a scan of an int8 copy is faster; see docs/performance.md."""
_LEFT = 10  # a tenth of the free memory is left to others


class GpuIndex:
    """Searches the live rows of a store on a GPU; until they were sent there in the background, the CPU searches."""

    def __init__(self, files: Generation, row_index: RowIndex) -> None:
        self._row_index = row_index
        self._files = files
        self._sent = _sent_of(files)
        self._scan: Scan | None = None
        self._live: Tensor | None = None
        self._sending = threading.Thread(target=self._send, daemon=True)
        self._sending.start()

    @property
    def is_ready(self) -> bool:
        """Whether searches go to the GPU."""
        return self._scan is not None

    def wait(self) -> None:
        """Wait until everything was sent, or sending failed."""
        self._sending.join()

    def search(self, queries: Float32Array, k: int, rows: Ids | None) -> Neighbors | None:
        """Find the k best for each of the queries [queries, dim] among some live rows [n], or, with None, all of them.

        The result equals that of an exact search on the CPU. None: the embeddings are not on the GPU.
        """
        scan = self._scan
        if scan is None:
            return None
        try:
            near = scan.near(queries, k, self._live if rows is None else rows)
        except RuntimeError as error:
            self._scan = None
            _log.warning("searching on the CPU from now on: %s", str(error))
            return None
        ids = np.where(near.rows < 0, -1, self._row_index.row_ids[near.rows])
        scores, ids = near.best(ids, k)
        return Neighbors(ids, scores)

    def _send(self) -> None:
        import torch

        try:
            scan = self._sent.up_to(self._files.embeddings(slice(None)))
            self._live = torch.from_numpy(self._row_index.is_live.copy()).to(DEVICE)
            self._scan = scan
        except OSError:  # the files were closed by a refresh, which sends the new ones
            return
        except (StoreError, RuntimeError, ImportError) as error:  # ImportError: torch came without Triton
            _log.warning("searching on the CPU: %s", str(error))


class _Sent:
    """The embeddings of one file that were sent to the GPU."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scan: Scan | None = None

    def up_to(self, embeddings: Float16Array) -> "Scan":
        """All of the embeddings [rows, dim] so far, and perhaps some that come later."""
        from sightline.kernels.scan import Scan

        with self._lock:
            if self._scan is None:
                self._scan = Scan(embeddings, _dtype_for(embeddings), device=DEVICE)
            elif len(embeddings) > len(self._scan):
                self._scan.append(embeddings[len(self._scan) :])
            return self._scan


_all_sent: WeakValueDictionary[tuple[int, int], _Sent] = WeakValueDictionary()
_looking = threading.Lock()


def _sent_of(files: Generation) -> _Sent:
    """The shared copy of a store's file, kept as long as a store uses it.

    Each of them has the file open, so no other file can get its inode.
    """
    with _looking:
        return _all_sent.setdefault(files.identity, _Sent())


def _dtype_for(embeddings: Float16Array) -> "Dtype":
    """How to scan embeddings [rows, dim]: many rows in int8, which is up to twice as fast, if there is room for both.

    The result is the same. Embeddings that would not leave a tenth of the GPU's free memory free are refused.
    """
    from sightline.kernels.scan import bytes_of

    (rows, dim), free = embeddings.shape, free_bytes()
    available = free - free // _LEFT
    if rows >= INT8_ROWS and bytes_of(rows, dim, "int8") <= available:
        return "int8"
    needed = bytes_of(rows, dim)
    if needed > available:
        raise StoreError(f"{rows} embeddings take {needed} bytes of the GPU's memory, and {free} are free")
    return "float16"


def free_bytes() -> int:
    """Free memory of the GPU."""
    import torch

    return torch.cuda.mem_get_info()[0]
