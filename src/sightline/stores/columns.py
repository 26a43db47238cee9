"""Append-only files of fixed-size records, read through memory maps and verified by checksums."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.arrays import Int64Array
from sightline.errors import DamagedStoreError
from sightline.files import open_regular
from sightline.stores.checksums import BLOCK, BlockChecksums, checksum

_AT_ONCE = 16 << 20  # bytes read at a time to compute checksums


class Column:
    """A file of `count` records of one dtype, such as `np.dtype((np.float16, 512))`. Any bytes after them are ignored.

    The file stays open, so that it can still be read after another process has replaced it.

    tail: the checksum of the bytes after the last whole block; None in a store without checksums.
    """

    def __init__(
        self,
        path: Path,
        dtype: npt.DTypeLike,
        count: int,
        *,
        write: bool,
        new: bool = False,
        tail: int | None = None,
    ) -> None:
        self.path, self.dtype, self.count = path, np.dtype(dtype), count
        if new:
            path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if new else os.O_RDWR if write else os.O_RDONLY
        self._file = open_regular(path, flags)
        self._map: npt.NDArray[Any] | None = None
        self._is_synced = not new
        self._checksums: BlockChecksums | None = None
        try:
            self._check_size()
            if new or tail is not None:
                tail = checksum(b"") if tail is None else tail
                sums = checksums_path(path)
                self._checksums = BlockChecksums(sums, self._file, self.bytes, tail, write=write, new=new)
        except BaseException:
            os.close(self._file)
            raise
        if write and os.fstat(self._file).st_size > self.bytes:
            os.ftruncate(self._file, self.bytes)

    @property
    def bytes(self) -> int:
        """Size of the records in bytes."""
        return self.count * self.dtype.itemsize

    @property
    def tail(self) -> int | None:
        """The checksum of the bytes after the last whole block; None without checksums."""
        return None if self._checksums is None else self._checksums.tail

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode, which identify the open file even after it was replaced."""
        found = os.fstat(self._file)
        return found.st_dev, found.st_ino

    def append(self, records: npt.NDArray[Any]) -> None:
        """Append records [n, …]; they become valid once all of them are written."""
        self._is_synced = False
        data = records.astype(self.dtype.base, copy=False).tobytes()
        left, offset = memoryview(data), self.bytes
        while left:
            written = os.pwrite(self._file, left, offset)
            left, offset = left[written:], offset + written
        if self._checksums is not None:
            self._checksums.extend(data)
        self.count += len(records)

    def cut(self, count: int) -> None:
        """Truncate the file to `count` records."""
        self.count = count
        os.ftruncate(self._file, self.bytes)
        if self._checksums is not None:
            self._checksums.cut(self.bytes)

    def add_checksums(self) -> None:
        """Compute the checksums of all records, in a store created without them."""
        made = BlockChecksums(checksums_path(self.path), self._file, 0, checksum(b""), write=True, new=True)
        for start in range(0, self.bytes, _AT_ONCE):
            made.extend(os.pread(self._file, min(_AT_ONCE, self.bytes - start), start))
        self._checksums = made

    def view(self, places: Int64Array | slice | None = None) -> npt.NDArray[Any]:
        """Return all records as a read-only, memory-mapped array.

        places: records to verify, which must include all that the caller reads; None verifies none.
        """
        self._check_size()  # reading beyond the end of a mapped file would kill the process
        shown = self._map
        if shown is None or len(shown) != self.count:
            buffer = mmap.mmap(self._file, self.bytes, access=mmap.ACCESS_READ) if self.bytes else b""
            shown = self._map = np.ndarray((self.count,), dtype=self.dtype, buffer=buffer)
        if places is not None:
            self._check(shown, places)
        return shown

    def take(self, starts: Int64Array, lengths: Int64Array) -> npt.NDArray[Any]:
        """Verify and copy runs of records, as bytes, which is four times as fast as copying by field.

        starts: [runs], the first record of each run. lengths: [runs], the number of its records.
        """
        shown = self.view()
        self._check(shown, starts, lengths)
        places = np.arange(lengths.sum()) + np.repeat(starts + lengths - np.cumsum(lengths), lengths)
        as_bytes = shown.view(np.uint8).reshape(len(shown), self.dtype.itemsize)
        taken: npt.NDArray[Any] = np.take(as_bytes, places, axis=0).view(self.dtype)[:, 0]
        return taken

    def damaged(self) -> Int64Array:
        """Return the positions of records that overlap a damaged block, in ascending order; empty without checksums."""
        if self._checksums is None:
            return np.zeros(0, dtype=np.int64)
        blocks = self._checksums.damaged(_bytes_of(self.view()))
        size = self.dtype.itemsize
        ranges = [np.arange(b * BLOCK // size, min(-(-(b + 1) * BLOCK // size), self.count)) for b in blocks.tolist()]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *ranges]))

    def sync(self) -> None:
        """Sync appended records to disk."""
        if not self._is_synced:
            os.fsync(self._file)
            self._is_synced = True
        if self._checksums is not None:
            self._checksums.sync()

    def close(self) -> None:
        """Close the files; arrays returned earlier stay readable."""
        self._map = None
        os.close(self._file)
        self._file = -1
        if self._checksums is not None:
            self._checksums.close()

    def _check_size(self) -> None:
        size = os.fstat(self._file).st_size
        if size < self.bytes:
            raise DamagedStoreError(f"{self.path}: has {size} bytes, but {self.bytes} were written")

    def _check(self, records: npt.NDArray[Any], places: Int64Array | slice, lengths: Int64Array | int = 1) -> None:
        """Raise an error if any of these records is damaged. lengths: the number of records starting at each place."""
        if self._checksums is None or self._checksums.are_checked:
            return
        blocks = None
        if not isinstance(places, slice):
            size = self.dtype.itemsize
            first, last = places * size // BLOCK, ((places + lengths) * size - 1) // BLOCK
            blocks = self._checksums.unchecked(first, np.maximum(first, last))
        bad = self._checksums.damaged(_bytes_of(records), blocks)
        if len(bad):
            raise DamagedStoreError(f"{self.path} is damaged at byte {int(bad[0]) * BLOCK:,}")


def checksums_path(path: Path) -> Path:
    """Return the path of a column's checksum file: `ids-sums.0` for `ids.0`."""
    return path.with_name(f"{path.stem}-sums{path.suffix}")


def _bytes_of(records: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return records.view(np.uint8).reshape(-1)
