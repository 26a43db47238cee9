"""A copy of a local store's embeddings on a GPU for exact search.

Stores that have the same file open share one copy. If the file has grown when a store is opened or refreshed, as in a
server whose collection is being indexed, only the new rows are copied.
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
"""Number of rows from which scanning an int8 copy is faster; see docs/performance.md."""
_LEFT = 10  # keep a tenth of the free memory free


class GpuIndex:
    """Searches the live rows of a store on a GPU, once they have been copied there in the background."""

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
        """Whether the copy on the GPU is complete."""
        return self._scan is not None

    def wait(self) -> None:
        """Wait until copying has finished or failed."""
        self._sending.join()

    def search(self, queries: Float32Array, k: int, rows: Ids | None) -> Neighbors | None:
        """Find the k best items for each of the queries [queries, dim] among some live rows [n], or among all if None.

        The result equals that of an exact search on the CPU. Returns None if the embeddings are not on the GPU.
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
        except OSError:  # a refresh closed the files, and copies the new ones
            return
        except (StoreError, RuntimeError, ImportError) as error:  # ImportError: torch was installed without Triton
            _log.warning("searching on the CPU: %s", str(error))


class _Sent:
    """The embeddings of one file on the GPU."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scan: Scan | None = None

    def up_to(self, embeddings: Float16Array) -> "Scan":
        """Copy the embeddings [rows, dim] that are not yet on the GPU, and return a scan of at least these rows."""
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
    """Return the shared copy of a store's file, kept as long as any store uses it.

    Every such store has the file open, so no other file can get its inode.
    """
    with _looking:
        return _all_sent.setdefault(files.identity, _Sent())


def _dtype_for(embeddings: Float16Array) -> "Dtype":
    """Choose the dtype for scanning embeddings [rows, dim]: int8 for many rows if both copies fit, else float16.

    Scanning int8 is up to twice as fast, and the result is the same. Raises an error if less than a tenth of the GPU's
    free memory would remain free.
    """
    from sightline.kernels.scan import bytes_of

    (rows, dim), free = embeddings.shape, free_bytes()
    available = free - free // _LEFT
    if rows >= INT8_ROWS and bytes_of(rows, dim, "int8") <= available:
        return "int8"
    needed = bytes_of(rows, dim)
    if needed > available:
        raise StoreError(f"{rows} embeddings take {needed} bytes of GPU memory, but only {free} are free")
    return "float16"


def free_bytes() -> int:
    """Return the free memory of the GPU."""
    import torch

    return torch.cuda.mem_get_info()[0]
