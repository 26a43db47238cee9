"""A store in a local folder: no server needed, and safe against crashes, power cuts and damaged files.

    head.json       the number of valid records in each file, and the generation of the files
    ids.0           one id per row, in the order items were added
    embeddings.0    float16, one vector per row
    codes.0         the signs of the embedding, one bit per dimension
    ends.0          where the fragments and states of a row end
    fragments.0     int8 with a scale, one record per fragment
    states.0        int8 with a scale, one record per state
    deleted.0       deleted rows
    fast.0          rows that a fast image graph encoded
    ids-sums.0 …    checksums of `ids.0` and the other files, one per block of 4096 bytes

Files are append-only. `flush` syncs them and then replaces the head; after a crash, the last head determines the state.
`compact` writes a new generation of files and then replaces the head. Every block is verified when it is first read.
"""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.errors import StoreError
from sightline.files import FolderLock
from sightline.stores.base import Ids, Neighbors, PaddedVectors, Part, QuantizedRows, Shape, Stats
from sightline.stores.generation import Generation, next_number, remove_others
from sightline.stores.head import read_head, write_head
from sightline.stores.local_files import (
    DAMAGE_FILE,
    closed_on_error,
    disk_errors,
    lock_folder,
    open_files,
    open_files_to_write,
    remember_damage,
)
from sightline.stores.local_search import Effort, search
from sightline.stores.packing import check_rows, checked_ids, kept_parts, pack, unit
from sightline.stores.row_index import RowIndex

if TYPE_CHECKING:
    from sightline.stores.gpu_index import GpuIndex

_ROWS = 4096  # rows copied at once by `compact`


class LocalStore:
    """Keeps vectors in a folder. One process at a time writes; any number of others read what was last flushed.

    Several threads may search at once, but not while another adds, deletes, compacts or refreshes.
    """

    def __init__(
        self, folder: Path, files: Generation, lock: FolderLock | None, effort: Effort, prefer_gpu: bool
    ) -> None:
        self._folder, self._files, self._lock, self._effort = folder, files, lock, effort
        self._row_index = RowIndex(files.ids, files.deleted)
        self._device = _gpu_index(files, self._row_index) if prefer_gpu else None
        self._flushed = files.head()
        self._is_open = True

    @classmethod
    def open(
        cls, folder: Path, shape: Shape, *, write: bool, effort: Effort | None = None, prefer_gpu: bool = False
    ) -> "LocalStore":
        """Open the store in a folder; for writing, it is created if missing.

        Anything a crashed process wrote after its last flush is ignored, and removed by the next writer.

        prefer_gpu: keep a copy of the embeddings on a GPU, if there is one; for stores that are searched often.
        """
        effort = effort or Effort()
        if not write:
            with remember_damage(folder), closed_on_error(open_files(folder, shape)) as files:
                return cls(folder, files, None, effort, prefer_gpu)
        with disk_errors(folder):
            lock = lock_folder(folder)
            try:
                with closed_on_error(open_files_to_write(folder, shape)) as files:
                    return cls(folder, files, lock, effort, prefer_gpu=False)
            except BaseException:
                lock.close()
                raise

    @staticmethod
    def reset(folder: Path, shape: Shape) -> None:
        """Replace a store that cannot be opened with an empty one."""
        with disk_errors(folder):
            lock = lock_folder(folder)
            try:
                with closing(Generation.new(folder, shape, next_number(folder))) as files:
                    files.sync()
                    write_head(folder, files.head())
                remove_others(folder, files.head())
                (folder / DAMAGE_FILE).unlink(missing_ok=True)
            finally:
                lock.close()

    @property
    def shape(self) -> Shape:
        """Dimensions of the store's vectors."""
        return self._files.shape

    def __len__(self) -> int:
        return len(self._row_index)

    def add(self, ids: Ids, encoded: Encoded, *, fast: bool = False) -> None:
        """Add items; raises an error and adds nothing if an id already exists.

        Embeddings are scaled to unit length and rounded to float16; fragments and states are quantised to int8.

        fast: record that the fast graph encoded them.
        """
        self._check_writable()
        packed = pack(ids, encoded, self.shape, fast=fast)
        existing = packed.ids[self._row_index.find(packed.ids) >= 0]
        if len(existing):
            raise StoreError(f"{self._folder}: id {existing[0]} already exists", "Delete it first to replace it.")
        with disk_errors(self._folder):
            self._files.append(packed)
        self._row_index.append(packed.ids)

    def replace(self, ids: Ids, encoded: Encoded) -> None:
        """Replace the vectors of items, which then no longer count as encoded by the fast graph.

        The next flush makes all of this valid at once. Unknown ids are an error.
        """
        self._check_writable()
        packed, rows = pack(ids, encoded, self.shape), self._rows_with(ids, "embedding")
        with disk_errors(self._folder):
            self._files.append(packed, replaced=rows)
        self._row_index.remove(rows)
        self._row_index.append(packed.ids)

    def fast_ids(self, among: Ids | None = None) -> Ids:
        """Return the ids of all items that the fast graph encoded, or of those in `among`, in ascending order."""
        self._check_open()
        with remember_damage(self._folder):
            rows = self._files.fast
        if among is None or not len(rows):
            return np.sort(self._row_index.row_ids[rows[self._row_index.is_live[rows]]])
        own = self._row_index.find(checked_ids(among))
        places = np.searchsorted(rows, own)
        is_fast = (own >= 0) & (places < len(rows))
        is_fast[is_fast] = rows[places[is_fast]] == own[is_fast]
        return np.sort(self._row_index.row_ids[own[is_fast]])

    @property
    def is_wasteful(self) -> bool:
        """Whether deleted rows exceed a quarter of the others, so that `compact` is worthwhile."""
        return (self._row_index.rows - len(self)) * 4 > len(self)

    def delete(self, ids: Ids) -> None:
        """Delete items; unknown ids are ignored."""
        self._check_writable()
        rows = self._row_index.rows_of(checked_ids(ids))
        with disk_errors(self._folder):
            self._files.delete(rows)
        self._row_index.remove(rows)

    def ids(self) -> Ids:
        """Return all ids, in ascending order."""
        self._check_open()
        return self._row_index.ids()

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim]; ties go to the lower id.

        where: search only these ids. The filter is applied before ranking, so there are k results if enough items pass.
        Scores are exact cosines of the stored vectors, even if sign codes chose the candidates.
        """
        self._check_open()
        queries = unit(vectors, self.shape.embedding)
        if k < 1:
            raise StoreError(f"k cannot be {k}", "Set k to at least 1.")
        rows = None if where is None else self._row_index.rows_of(checked_ids(where))
        if self._device is not None and (found := self._device.search(queries, k, rows)) is not None:
            return found
        with remember_damage(self._folder):
            return search(self._files, self._row_index, queries, k, rows, self._effort)

    def fetch(self, ids: Ids, part: Part) -> PaddedVectors:
        """Return the vectors of items, in the order of `ids`; an embedding is one vector. Unknown ids are an error."""
        with remember_damage(self._folder):
            return self._files.part(self._rows_with(ids, part), part)

    def rows(self, ids: Ids, part: Part, first: int | None = None) -> QuantizedRows:
        """Like `fetch`, but returns fragments or states still quantised, which is several times faster.

        first: return at most this many vectors per item.
        """
        check_rows(part, first)
        with remember_damage(self._folder):
            return self._files.rows(self._rows_with(ids, part), part, first)

    def flush(self) -> None:
        """Make all changes so far survive a crash, and visible to readers that open or refresh the store."""
        self._check_writable()
        head = self._files.head()
        if head == self._flushed:
            return
        with disk_errors(self._folder):
            self._files.sync()
            write_head(self._folder, head)
        self._flushed = head

    def refresh(self) -> bool:
        """Load what the writing process has flushed in the meantime; returns False if nothing has changed."""
        self._check_open()
        if self._lock is not None or read_head(self._folder) == self._flushed:
            return False
        with remember_damage(self._folder), closed_on_error(open_files(self._folder, self.shape)) as files:
            row_index = RowIndex(files.ids, files.deleted)
            device = None if self._device is None else _gpu_index(files, row_index)
        old, self._files, self._flushed = self._files, files, files.head()
        self._row_index, self._device = row_index, device
        old.close()
        return True

    def compact(self) -> None:
        """Reclaim the space of deleted items. Readers keep using the old files until they refresh."""
        self.flush()
        if len(self) == self._row_index.rows:
            return
        self._rewrite(np.flatnonzero(self._row_index.is_live))

    def damaged_ids(self) -> Ids:
        """Return the ids of damaged items, in ascending order; reads every byte.

        Damage that affects all items raises a `DamagedStoreError`.
        """
        self._check_open()
        rows = self._files.damaged_rows()
        return np.sort(self._row_index.row_ids[rows[self._row_index.is_live[rows]]])

    def drop_damaged(self) -> None:
        """Delete damaged items, by writing all others to new files."""
        self._check_writable()
        damaged = self._files.damaged_rows()
        if len(damaged):
            self._rewrite(np.setdiff1d(np.flatnonzero(self._row_index.is_live), damaged))
        (self._folder / DAMAGE_FILE).unlink(missing_ok=True)

    @property
    def is_suspect(self) -> bool:
        """Whether a reader has found damage since the last `drop_damaged`."""
        return (self._folder / DAMAGE_FILE).exists()

    def _rewrite(self, live: Ids) -> None:
        """Copy some rows to a new generation of files, and switch to it."""
        old = self._files
        with disk_errors(self._folder):
            new = Generation.new(self._folder, self.shape, old.number + 1)
            try:
                for start in range(0, len(live), _ROWS):
                    new.append(old.select(live[start : start + _ROWS]))
                new.sync()
                write_head(self._folder, new.head())
            except BaseException:
                new.close()
                head = read_head(self._folder)
                if head is not None and head.generation == old.number:  # give back the space of what was copied
                    remove_others(self._folder, head)
                raise
        self._files, self._flushed = new, new.head()
        self._row_index = RowIndex(new.ids, new.deleted)
        old.close()
        remove_others(self._folder, self._flushed)

    def stats(self) -> Stats:
        """Return the number of items, bytes on disk, and the method used for unfiltered searches."""
        self._check_open()
        way = "exact" if self._effort.is_exact(len(self)) else "signs, then exact"
        if self._device is not None and self._device.is_ready:
            way = "exact, on the GPU"
        return Stats(len(self), self._files.bytes, way)

    def close(self) -> None:
        """Flush and close the files; closing twice is allowed."""
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
                self._lock.close()

    def _rows_with(self, ids: Ids, part: Part) -> Ids:
        """Return the rows of these ids; raises an error if an id is unknown or the store does not have this part."""
        self._check_open()
        if part != "embedding" and part not in kept_parts(self.shape):
            raise StoreError(f"{self._folder}: has no {part}", "Use a model that produces them, and index again.")
        ids = checked_ids(ids)
        rows = self._row_index.find(ids)
        if len(rows) and rows.min() < 0:
            raise StoreError(f"{self._folder}: id {ids[rows.argmin()]} does not exist")
        return rows

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"{self._folder}: the store was closed", "Open it again.")

    def _check_writable(self) -> None:
        self._check_open()
        if self._lock is None:
            raise StoreError(f"{self._folder}: was opened for reading only", "Open it with write=True.")


def _gpu_index(files: Generation, row_index: RowIndex) -> "GpuIndex | None":
    """Return a copy of the embeddings on a GPU, if there is one."""
    from sightline.device import has_gpu

    if not has_gpu():
        return None
    from sightline.stores.gpu_index import GpuIndex

    return GpuIndex(files, row_index)
