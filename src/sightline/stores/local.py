"""A store in a folder of this machine: nothing to install, nothing to start, safe to pull the plug on.

    head.json       what is valid: how many records of each file, and which generation of files
    ids.0           one id a row, in the order in which items were added
    embeddings.0    float16, one vector a row
    codes.0         the signs of the embedding, one bit a number
    ends.0          where a row's fragments and states end
    fragments.0     int8 with a scale, one record a fragment
    states.0        int8 with a scale, one record a state
    deleted.0       rows that were deleted

Files only grow; `flush` syncs them and then replaces the head, and a crash takes the store back to the last head.
`compact` writes a next generation of files, and the head changes over to it at one stroke.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.errors import StoreError
from sightline.stores.base import Ids, Neighbors, PaddedVectors, Part, QuantizedRows, Shape, Stats
from sightline.stores.generation import Generation, remove_others
from sightline.stores.head import check_shape, read_head, write_head
from sightline.stores.local_search import Effort, search
from sightline.stores.lock import lock
from sightline.stores.packing import check_rows, checked_ids, kept_parts, pack, unit
from sightline.stores.row_index import RowIndex

if TYPE_CHECKING:
    from sightline.stores.gpu_index import GpuIndex

_ROWS = 4096  # that `compact` copies at once
_TRIES = 10  # to open files before `compact` in another process has replaced them


class LocalStore:
    """Keeps vectors in a folder; one process at a time writes, any number of others read what it last flushed.

    Several threads may search one store at once; whoever adds, deletes, compacts or refreshes wants it for itself.
    """

    def __init__(self, folder: Path, files: Generation, handle: int | None, effort: Effort, prefer_gpu: bool) -> None:
        self._folder, self._files, self._lock, self._effort = folder, files, handle, effort
        self._row_index = RowIndex(files.ids, files.deleted)
        self._device = _gpu_index(files, self._row_index) if prefer_gpu else None
        self._flushed = files.head()
        self._is_open = True

    @classmethod
    def open(
        cls, folder: Path, shape: Shape, *, write: bool, effort: Effort | None = None, prefer_gpu: bool = False
    ) -> "LocalStore":
        """Open the store in a folder; for writing, a store that is not there is made.

        What was written after the last flush of a process that died is cut off when the store is next opened for
        writing, and never seen before. prefer_gpu: a store for reading will be searched so often that it pays to send
        its embeddings to a GPU, where there is one.
        """
        effort = effort or Effort()
        if not write:
            return cls(folder, _open_files(folder, shape), None, effort, prefer_gpu)
        with _disk_trouble(folder):
            folder.mkdir(parents=True, exist_ok=True)
            handle = lock(folder)
            try:
                return cls(folder, _open_files_to_write(folder, shape), handle, effort, prefer_gpu=False)
            except BaseException:
                os.close(handle)
                raise

    @property
    def shape(self) -> Shape:
        """How wide its vectors are."""
        return self._files.shape

    def __len__(self) -> int:
        return len(self._row_index)

    def add(self, ids: Ids, encoded: Encoded) -> None:
        """Add items; an id that is there already is an error, and then nothing is added.

        Embeddings are scaled to unit length and rounded to float16, fragments and states to 127 steps either way.
        """
        self._check_writable()
        packed = pack(ids, encoded, self.shape)
        there = packed.ids[self._row_index.find(packed.ids) >= 0]
        if len(there):
            raise StoreError(f"{self._folder}: id {there[0]} is there already", "Delete it first to replace it.")
        with _disk_trouble(self._folder):
            self._files.append(packed)
        self._row_index.append(packed.ids)

    def delete(self, ids: Ids) -> None:
        """Forget items; ids that are not there are passed over."""
        self._check_writable()
        rows = self._row_index.rows_of(checked_ids(ids))
        with _disk_trouble(self._folder):
            self._files.delete(rows)
        self._row_index.remove(rows)

    def ids(self) -> Ids:
        """Every id that is there, in ascending order."""
        self._check_open()
        return self._row_index.ids()

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim]; lower ids first in a tie.

        where: only these ids are looked at. The filter comes before the ranking, so it never costs results. Scores
        are the cosines of the vectors as they are stored, also where signs chose the candidates.
        """
        self._check_open()
        queries = unit(vectors, self.shape.embedding)
        if k < 1:
            raise StoreError(f"the {k} best were asked for", "Ask for at least one.")
        rows = None if where is None else self._row_index.rows_of(checked_ids(where))
        if self._device is not None and (found := self._device.search(queries, k, rows)) is not None:
            return found
        return search(self._files, self._row_index, queries, k, rows, self._effort)

    def fetch(self, ids: Ids, part: Part) -> PaddedVectors:
        """Give the vectors of items, in the order of `ids`; an embedding is a part with one vector.

        An id that is not there is an error.
        """
        return self._files.part(self._rows_with(ids, part), part)

    def rows(self, ids: Ids, part: Part, first: int | None = None) -> QuantizedRows:
        """Give fragments or states of items as `fetch` does, but as they are kept: in a fraction of the time.

        first: only so many of each item, those that come first.
        """
        check_rows(part, first)
        return self._files.rows(self._rows_with(ids, part), part, first)

    def flush(self) -> None:
        """Make everything added and deleted so far survive a crash, and seen by readers that open or refresh."""
        self._check_writable()
        head = self._files.head()
        if head == self._flushed:
            return
        with _disk_trouble(self._folder):
            self._files.sync()
            write_head(self._folder, head)
        self._flushed = head

    def refresh(self) -> bool:
        """See what the writing process has flushed since; says whether there was anything. Quick when not."""
        self._check_open()
        if self._lock is not None or read_head(self._folder) == self._flushed:
            return False
        old, files = self._files, _open_files(self._folder, self.shape)
        self._files, self._flushed = files, files.head()
        self._row_index = RowIndex(files.ids, files.deleted)
        if self._device is not None:
            self._device = _gpu_index(files, self._row_index)
        old.close()
        return True

    def compact(self) -> None:
        """Give the space of deleted items back. Readers go on with the old files until they refresh."""
        self.flush()
        if len(self) == self._row_index.rows:
            return
        live = np.flatnonzero(self._row_index.is_live)
        old = self._files
        with _disk_trouble(self._folder):
            new = Generation.new(self._folder, self.shape, old.number + 1)
            try:
                for start in range(0, len(live), _ROWS):
                    new.append(old.select(live[start : start + _ROWS]))
                new.sync()
                write_head(self._folder, new.head())
            except BaseException:
                new.close()
                raise
        self._files, self._flushed = new, new.head()
        self._row_index = RowIndex(new.ids, new.deleted)
        old.close()
        remove_others(self._folder, self._flushed)

    def stats(self) -> Stats:
        """Say how large the store is, and how a search without a filter goes about it."""
        self._check_open()
        way = "exact" if self._effort.is_exact(len(self)) else "signs, then exact"
        if self._device is not None and self._device.is_ready:
            way = "exact, on the GPU"
        return Stats(len(self), self._files.bytes, way)

    def close(self) -> None:
        """Flush, and let go of the files; a store that is closed already stays so."""
        if not self._is_open:
            return
        try:
            if self._lock is not None:
                self.flush()
        finally:
            self._is_open = False
            self._device = None
            self._files.close()
            if self._lock is not None:
                os.close(self._lock)

    def _rows_with(self, ids: Ids, part: Part) -> Ids:
        """The rows of ids, all of which must be there, in a store that keeps such a part."""
        self._check_open()
        if part != "embedding" and part not in kept_parts(self.shape):
            raise StoreError(f"{self._folder}: keeps no {part}", "Use a model that makes them, and index again.")
        ids = checked_ids(ids)
        rows = self._row_index.find(ids)
        if len(rows) and rows.min() < 0:
            raise StoreError(f"{self._folder}: id {ids[rows.argmin()]} is not there")
        return rows

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"{self._folder}: the store was closed", "Open it again.")

    def _check_writable(self) -> None:
        self._check_open()
        if self._lock is None:
            raise StoreError(f"{self._folder}: was opened for reading only", "Open it with write=True.")


def _gpu_index(files: Generation, row_index: RowIndex) -> "GpuIndex | None":
    """The embeddings on a GPU, where there is one."""
    from sightline.device import has_gpu

    if not has_gpu():
        return None
    from sightline.stores.gpu_index import GpuIndex

    return GpuIndex(files, row_index)


def _open_files(folder: Path, shape: Shape) -> Generation:
    """Open the files that the head speaks of, for reading; when they are gone, there is a newer head."""
    for _ in range(_TRIES):
        head = read_head(folder)
        if head is None:
            raise StoreError(f"{folder}: no vectors are stored here", "Index some images first.")
        check_shape(folder, head, shape)
        try:
            return Generation(folder, head, write=False)
        except FileNotFoundError:
            continue
    raise _missing_files(folder)


def _open_files_to_write(folder: Path, shape: Shape) -> Generation:
    """Open or make the files of a store, cut back to its head, and clear away what a crash left behind."""
    head = read_head(folder)
    if head is None:
        files = Generation.new(folder, shape, 0)
        files.sync()
        write_head(folder, files.head())
        return files
    check_shape(folder, head, shape)
    try:
        files = Generation(folder, head, write=True)
    except FileNotFoundError as error:
        raise _missing_files(folder) from error
    remove_others(folder, head)
    return files


def _missing_files(folder: Path) -> StoreError:
    return StoreError(f"{folder}: files of the store are missing", "Delete that folder of vectors and index again.")


@contextmanager
def _disk_trouble(folder: Path) -> Iterator[None]:
    """Say in plain words when the disk is full or gone."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written to: {error.strerror or error}",
            "Make room or choose another folder; what was flushed before is safe.",
        ) from error
