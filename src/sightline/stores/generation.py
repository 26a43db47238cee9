"""The files of a local store between two calls to `compact`."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float16Array, UInt8Array
from sightline.errors import DamagedStoreError
from sightline.files import sync_folder
from sightline.stores.base import Ids, PaddedVectors, Part, QuantizedRows, Shape
from sightline.stores.columns import Column
from sightline.stores.head import WITH_CHECKSUMS, WITH_FAST, Head
from sightline.stores.packing import Packed, kept_parts, record_type, unpack
from sightline.stores.sign_codes import code_bytes

_FAST = "fast"  # a column that older versions do not have


class Generation:
    """The columns of a store. A row has an id, an embedding, a code, and the end offset of its fragments and states.

    Separate columns list the deleted rows, and the rows that a fast graph encoded. Everything is verified before it is
    read.
    """

    def __init__(self, folder: Path, head: Head, *, write: bool, new: bool = False) -> None:
        self.folder, self.shape, self.number = folder, head.shape, head.generation
        self._columns: dict[str, Column] = {}
        layout = _layout(head.shape)
        if not new:
            _check_counts(folder, head, layout)
        try:
            for name, dtype in layout.items():
                path = folder / f"{name}.{head.generation}"
                is_missing = name == _FAST and name not in head.counts  # in a store of an older version
                if is_missing and not write:
                    continue
                tail = None if head.tails is None else head.tails.get(name)
                count = head.counts.get(name, 0)
                self._columns[name] = Column(path, dtype, count, write=write, new=new or is_missing, tail=tail)
            if write and head.tails is None and not new:
                for column in self._columns.values():
                    if column.tail is None:
                        column.add_checksums()
        except BaseException:
            self.close()
            raise

    @classmethod
    def new(cls, folder: Path, shape: Shape, number: int) -> "Generation":
        """Create an empty generation, replacing an unfinished one."""
        return cls(folder, Head(WITH_CHECKSUMS, shape, number, {}), write=True, new=True)

    def embeddings(self, rows: Ids | slice) -> Float16Array:
        """Return the embeddings of all rows [all rows, dim]; only `rows` are verified, so read no others."""
        return self._columns["embeddings"].view(rows)

    def codes(self, rows: Ids | slice) -> UInt8Array:
        """Return the sign codes of all rows [all rows, bytes]; only `rows` are verified, so read no others."""
        return self._columns["codes"].view(rows)

    @property
    def ids(self) -> Ids:
        """The id of every row [rows]."""
        return self._columns["ids"].view(slice(None))

    @property
    def deleted(self) -> Ids:
        """Deleted rows, in order of deletion."""
        return self._listed("deleted")

    @property
    def fast(self) -> Ids:
        """The rows that a fast graph encoded, in ascending order."""
        return self._listed(_FAST) if _FAST in self._columns else np.zeros(0, dtype=np.int64)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the embeddings file."""
        return self._columns["embeddings"].identity

    @property
    def bytes(self) -> int:
        """Size of all records in bytes."""
        return sum(column.bytes for column in self._columns.values())

    def append(self, packed: Packed, replaced: Ids | None = None) -> None:
        """Append items as the next rows, and delete the rows that they replace; does neither if a write fails."""
        columns: dict[str, npt.NDArray[Any]] = {
            "ids": packed.ids,
            "embeddings": packed.embeddings,
            "codes": packed.codes,
            _FAST: self._columns["ids"].count + np.flatnonzero(packed.is_fast),
            **({} if replaced is None else {"deleted": replaced}),
            **packed.parts,
        }
        for name in packed.parts:
            columns["ends"] = self._columns[name].count + np.cumsum(packed.lengths)
        self._write(columns)

    def delete(self, rows: Ids) -> None:
        """Mark rows as deleted."""
        self._write({"deleted": rows})

    def select(self, rows: Ids) -> Packed:
        """Copy some rows in their stored form."""
        lengths = np.zeros(len(rows), dtype=np.int64)
        parts = {}
        for name in kept_parts(self.shape):
            starts, lengths = self._runs(rows)
            parts[name] = self._columns[name].take(starts, lengths)
        is_fast = np.isin(rows, self.fast)
        return Packed(self.ids[rows], self.embeddings(rows)[rows], self.codes(rows)[rows], lengths, parts, is_fast)

    def part(self, rows: Ids, part: Part) -> PaddedVectors:
        """Unpack one part of some rows, padded to the longest."""
        if part == "embedding":
            return PaddedVectors(
                self.embeddings(rows)[rows, None].astype(np.float32), np.ones((len(rows), 1), dtype=np.bool_)
            )
        starts, lengths = self._runs(rows)
        vectors = unpack(self._columns[part].take(starts, lengths))
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
        if mask.all():
            return PaddedVectors(vectors.reshape(*mask.shape, vectors.shape[1]), mask)
        padded = np.zeros((*mask.shape, vectors.shape[1]), dtype=np.float32)
        padded[mask] = vectors
        return PaddedVectors(padded, mask)

    def rows(self, rows: Ids, part: Part, first: int | None) -> QuantizedRows:
        """Copy one part of some rows in its stored form, at most the first `first` vectors of each row."""
        starts, lengths = self._runs(rows, first)
        records = self._columns[part].take(starts, lengths)
        return QuantizedRows(records["values"], records["scale"], lengths)

    def head(self) -> Head:
        """Return the head that describes everything written so far."""
        counts = {name: column.count for name, column in self._columns.items()}
        tails = {name: column.tail for name, column in self._columns.items() if column.tail is not None}
        format = WITH_FAST if counts.get(_FAST) else WITH_CHECKSUMS if tails else 1
        return Head(format, self.shape, self.number, counts, tails or None)

    def damaged_rows(self) -> Ids:
        """Return the rows with a damaged embedding, code, fragment or state; reads every byte.

        Damage to any other column raises a `DamagedStoreError`, because no row can be read without it.
        """
        rows = [self._columns[name].damaged() for name in ("embeddings", "codes")]
        for name in ("ids", "deleted", _FAST, "ends"):
            if name in self._columns:
                self._columns[name].view(slice(None))
        for name in kept_parts(self.shape):
            ends = self._columns["ends"].view()
            rows.append(np.searchsorted(ends, self._columns[name].damaged(), side="right").astype(np.int64))
        return np.unique(np.concatenate(rows))

    def sync(self) -> None:
        """Sync everything written so far, including the file names, to disk."""
        for column in self._columns.values():
            column.sync()
        sync_folder(self.folder)

    def close(self) -> None:
        """Close the files."""
        for column in self._columns.values():
            column.close()

    def _listed(self, name: str) -> Ids:
        """Return the rows in a column that lists rows."""
        column = self._columns[name]
        rows: Ids = column.view(slice(None))
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._columns["ids"].count:
            raise DamagedStoreError(f"{column.path} is damaged: it lists rows that do not exist")
        return rows

    def _runs(self, rows: Ids, first: int | None = None) -> tuple[Ids, Ids]:
        """Return where the vectors of some rows start in the columns of parts, and the number of vectors per row.

        first: at most this many vectors per row.
        """
        column = self._columns["ends"]
        ends = column.view(slice(None))
        starts = np.where(rows > 0, ends[rows - 1], 0)
        lengths = ends[rows] - starts
        if column.tail is None and len(rows):  # without checksums
            most = min(self._columns[name].count for name in kept_parts(self.shape))
            if starts.min() < 0 or lengths.min() < 0 or ends[rows].max() > most:
                raise DamagedStoreError(f"{column.path} is damaged: row boundaries are out of order or out of range")
        if first is not None:
            lengths = np.minimum(lengths, first)
        return starts, lengths

    def _write(self, records: Mapping[str, npt.NDArray[Any]]) -> None:
        before = {name: self._columns[name].count for name in records}
        try:
            for name, some in records.items():
                self._columns[name].append(some)
        except BaseException:
            for name, count in before.items():
                self._columns[name].cut(count)
            raise


def remove_others(folder: Path, head: Head) -> None:
    """Delete the files of all generations but the head's; files that cannot be deleted are left for next time."""
    for path in generation_files(folder):
        if path.suffix != f".{head.generation}":
            with contextlib.suppress(PermissionError):
                path.unlink()


def generation_files(folder: Path) -> list[Path]:
    """Return the files of all generations in a folder, which may also contain files of the user."""
    names = {name for column in _layout(Shape(1, 1, 1)) for name in (column, f"{column}-sums")}
    return [path for path in folder.glob("*.*") if path.stem in names and path.suffix[1:].isdecimal()]


def next_number(folder: Path) -> int:
    """Return a generation number for a folder whose head cannot be read: higher than that of any file there."""
    numbers = [int(path.suffix[1:]) for path in folder.glob("*.*") if path.suffix[1:].isdecimal()]
    return max(numbers, default=-1) + 1


def _check_counts(folder: Path, head: Head, layout: Mapping[str, npt.DTypeLike]) -> None:
    """Refuse a head with missing columns, or with columns of different lengths for the same rows."""
    rows = {head.counts.get(name, -1) for name in ("ids", "embeddings", "codes", "ends") if name in layout}
    listed = head.counts.keys() if head.tails is None else head.tails.keys() & head.counts.keys()
    if missing := layout.keys() - listed - {_FAST}:
        raise DamagedStoreError(f"{folder} is damaged: its head file does not list {', '.join(sorted(missing))}")
    if len(rows) > 1:
        raise DamagedStoreError(f"{folder} is damaged: its head file lists different numbers of rows")


def _layout(shape: Shape) -> dict[str, npt.DTypeLike]:
    """Return the columns of a store of this shape, with their dtypes."""
    parts = {name: record_type(width) for name, width in kept_parts(shape).items()}
    return {
        "ids": np.dtype("<i8"),
        "embeddings": np.dtype(("<f2", (shape.embedding,))),
        "codes": np.dtype(("u1", (code_bytes(shape.embedding),))),
        "deleted": np.dtype("<i8"),
        _FAST: np.dtype("<i8"),
        **({"ends": np.dtype("<i8")} if parts else {}),
        **parts,
    }
