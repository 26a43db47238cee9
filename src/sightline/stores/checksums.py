"""Checksums for each block of a file, to detect a damaged block when it is first read.

A block's checksum is the sum of its 64-bit words times fixed odd weights, modulo 2**64. Any change to a single word
changes it. NumPy computes it several times faster than CRC-32, for scattered blocks as well as for a whole file.
"""

import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.arrays import Int64Array, UInt8Array
from sightline.files import open_regular
from sightline.parallel import map_slices

BLOCK = 4096
"""Bytes in a block."""

UInt64Array = npt.NDArray[np.uint64]

_BLOCKS = 128  # blocks checked at once, so that they stay in the CPU cache
_EMPTY = 0x9E3779B97F4A7C15  # checksum of zeros: nonzero, so that a zeroed checksum file never matches zeroed data


def checksums(data: bytes | memoryview | UInt8Array) -> UInt64Array:
    """Return the checksums [blocks] of whole blocks."""
    words = np.frombuffer(data, dtype="<u8").reshape(-1, BLOCK // 8)
    sums: UInt64Array = np.einsum("ij,j->i", words, _WEIGHTS)
    return sums + np.uint64(_EMPTY)


def checksum(data: bytes) -> int:
    """Return the checksum of at most one block of data, which also depends on its length."""
    padded = data.ljust(BLOCK, b"\0")
    return (int(checksums(padded)[0]) + len(data)) % 2**64


class BlockChecksums:
    """Checksums of an append-only file: for whole blocks in a separate file, and for the remainder in memory.

    path: the checksum file. data: the open data file. size: number of valid bytes in it. tail: the checksum of the
    bytes after the last whole block.
    """

    def __init__(self, path: Path, data: int, size: int, tail: int, *, write: bool, new: bool = False) -> None:
        self.path, self._data, self.size, self.tail = path, data, size, tail
        if new:
            path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if new else os.O_RDWR if write else os.O_RDONLY
        self._file = open_regular(path, flags)
        self._checked = np.zeros(-(-size // BLOCK), dtype=np.bool_)
        self._stored: UInt64Array = np.zeros(0, dtype=np.uint64)
        self._is_synced = not new
        self._are_checked = False
        if write:
            os.ftruncate(self._file, 8 * (size // BLOCK))
            self._rest = self._read_rest()

    def extend(self, data: bytes) -> None:
        """Update the checksums for data appended to the file."""
        self._is_synced = False
        rest = self._rest + data
        whole = len(rest) // BLOCK * BLOCK
        if whole:
            _write_at(self._file, checksums(memoryview(rest)[:whole]).astype("<u8").tobytes(), 8 * (self.size // BLOCK))
        self.size += len(data)
        self._rest = rest[whole:]
        self.tail = checksum(self._rest)
        new = np.ones(-(-self.size // BLOCK), dtype=np.bool_)  # just written, so not checked again
        new[: len(self._checked)] = self._checked
        self._checked = new

    def cut(self, size: int) -> None:
        """Drop everything after `size` bytes."""
        self.size = size
        os.ftruncate(self._file, 8 * (size // BLOCK))
        self._rest = self._read_rest()
        self.tail = checksum(self._rest)
        self._checked = self._checked[: -(-size // BLOCK)]

    @property
    def are_checked(self) -> bool:
        """Whether every block has been verified."""
        self._are_checked = self._are_checked or bool(self._checked.all())
        return self._are_checked

    def unchecked(self, first: Int64Array, last: Int64Array) -> Int64Array:
        """Return the blocks in the ranges `first` to `last` [n] that have not been verified yet, in ascending order."""
        reach = int((last - first).max(initial=0))
        if reach <= 1:
            is_left = ~(self._checked[first] & self._checked[last])
            first, last = first[is_left], last[is_left]
        if not len(first):
            return first
        blocks = np.concatenate([np.minimum(first + step, last) for step in range(reach + 1)])
        return np.unique(blocks[~self._checked[blocks]])

    def damaged(self, data: UInt8Array, blocks: Int64Array | None = None) -> Int64Array:
        """Return the given blocks, or by default all blocks, that do not match their checksums.

        Blocks that were verified before are not read again.

        data: all bytes of the file.
        """
        wanted = np.flatnonzero(~self._checked) if blocks is None else blocks
        if not len(wanted):
            return wanted
        whole = self.size // BLOCK
        words = data[: whole * BLOCK].reshape(-1, BLOCK)
        inner = wanted[wanted < whole]

        def differs(some: slice) -> Int64Array:
            rows = inner[some]
            is_run = len(rows) and rows[-1] - rows[0] + 1 == len(rows)
            stored = words[rows[0] : rows[-1] + 1] if is_run else words[rows]
            return rows[checksums(np.ascontiguousarray(stored).reshape(-1)) != self._known(rows)] if len(rows) else rows

        bad = np.concatenate(map_slices(differs, len(inner), _BLOCKS))
        if wanted[-1] == whole and checksum(data[whole * BLOCK :].tobytes()) != self.tail:
            bad = np.append(bad, whole)
        good = np.setdiff1d(wanted, bad, assume_unique=True)
        self._checked[good] = True
        return bad

    def sync(self) -> None:
        """Sync the checksums to disk."""
        if not self._is_synced:
            os.fsync(self._file)
            self._is_synced = True

    def close(self) -> None:
        """Close the checksum file."""
        os.close(self._file)
        self._file = -1

    def _known(self, blocks: Int64Array) -> UInt64Array:
        """Read the stored checksums of some whole blocks; 0 for blocks missing from a truncated file."""
        size = os.fstat(self._file).st_size // 8 * 8
        if len(self._stored) != size // 8:
            buffer = mmap.mmap(self._file, size, access=mmap.ACCESS_READ) if size else b""
            self._stored = np.frombuffer(buffer, dtype="<u8")
        known = np.zeros(len(blocks), dtype=np.uint64)
        has_one = blocks < len(self._stored)
        known[has_one] = self._stored[blocks[has_one]]
        return known

    def _read_rest(self) -> bytes:
        return os.pread(self._data, self.size % BLOCK, self.size // BLOCK * BLOCK)


def _write_at(handle: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(handle, left, offset)
        left, offset = left[written:], offset + written


def _weights(count: int) -> UInt64Array:
    """Return odd 64-bit numbers from SplitMix64, which are the same on every machine."""
    state, found = 0, []
    for _ in range(count):
        state = (state + _EMPTY) % 2**64
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
        found.append((mixed ^ (mixed >> 31)) | 1)
    return np.array(found, dtype=np.uint64)


_WEIGHTS = _weights(BLOCK // 8)
