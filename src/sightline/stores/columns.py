"""Files to which records are only ever added, and which are read through memory maps."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.errors import StoreError


class Column:
    """A file of `count` records of one kind. What lies beyond them in the file is not there.

    A record is what the dtype says, such as `np.dtype((np.float16, 512))` for a vector. The file stays open, so that
    it can be read to the end even when another process has put a newer file in its place.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, count: int, *, write: bool, new: bool = False) -> None:
        self.path, self.dtype, self.count = path, np.dtype(dtype), count
        self._file = path.open("w+b" if new else "r+b" if write else "rb")
        self._map: npt.NDArray[Any] | None = None
        self._is_synced = not new
        size = os.fstat(self._file.fileno()).st_size
        if size < self.bytes:
            self._file.close()
            raise StoreError(
                f"{path}: {size} bytes, but {self.bytes} were written",
                "The file was cut off or replaced: delete the store's folder and index again.",
            )
        if write and size > self.bytes:
            self.cut()

    @property
    def bytes(self) -> int:
        """How much of the file is records."""
        return self.count * self.dtype.itemsize

    @property
    def identity(self) -> tuple[int, int]:
        """The numbers of disk and file: the same for all who have the file open, whatever has become of its name."""
        found = os.fstat(self._file.fileno())
        return found.st_dev, found.st_ino

    def append(self, records: npt.NDArray[Any]) -> None:
        """Write records [n, …] after the last one; they are counted, and can be read, when all are written."""
        self._is_synced = False
        self._file.seek(self.bytes)
        self._file.write(records.astype(self.dtype.base, copy=False).tobytes())
        self._file.flush()
        self.count += len(records)

    def cut(self, count: int | None = None) -> None:
        """Go back to `count` records, and remove what was written beyond them."""
        self.count = self.count if count is None else count
        self._file.truncate(self.bytes)

    def view(self) -> npt.NDArray[Any]:
        """All records, read from the file as they are looked at; the array cannot be written to."""
        shown = self._map
        if shown is None or len(shown) != self.count:
            buffer = mmap.mmap(self._file.fileno(), self.bytes, access=mmap.ACCESS_READ) if self.bytes else b""
            shown = self._map = np.ndarray((self.count,), dtype=self.dtype, buffer=buffer)
        return shown

    def take(self, places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Copy the records at some places: as bytes, which takes a quarter of the time that fields would."""
        shown = self.view()
        as_bytes = shown.view(np.uint8).reshape(len(shown), self.dtype.itemsize)
        taken: npt.NDArray[Any] = np.take(as_bytes, places, axis=0).view(self.dtype)[:, 0]
        return taken

    def sync(self) -> None:
        """Wait until what was appended is on the disk."""
        if not self._is_synced:
            os.fsync(self._file.fileno())
            self._is_synced = True

    def close(self) -> None:
        """Let go of the file; arrays that were given out stay readable."""
        self._map = None
        self._file.close()
