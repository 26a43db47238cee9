"""The catalog of a collection on a server, read from the notes in its store.

Notes of the requested items are loaded into tables in memory, which are queried with the same SQL as a catalog on disk.
"""

import base64
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sightline.collection.catalog.conditions import Condition, to_sql
from sightline.collection.catalog.database import FROM, Catalog
from sightline.collection.catalog.files import File, Item, Status
from sightline.collection.catalog.filter_fields import CONTENT_FIELDS, FILE_FIELDS
from sightline.collection.catalog.schema import empty_catalog
from sightline.collection.catalog.where import parse_where
from sightline.collection.remote.partitions import partition_keys_for
from sightline.stores.base import FILES, PARTITION_KEY, Ids, RemoteStore, Store
from sightline.stores.filters import Filter, Joined, Test, limited_to

_FEW = 4_096  # ids listed in one filter


class SharedCatalog(Catalog):
    """An in-memory catalog of the requested items of a store; their notes are read on each request."""

    def __init__(self, store: RemoteStore) -> None:
        super().__init__(Path("/"), empty_catalog())
        self.store = store
        self._reading = threading.RLock()

    def __len__(self) -> int:
        return self.store.stats().items

    def ids(self) -> list[int]:
        """Return the ids of all contents, in ascending order."""
        found: list[int] = self.store.ids().tolist()
        return found

    def items(self, ids: Sequence[int], condition: Condition | None = None) -> dict[int, Item]:
        """Return the items with these ids and all their files; ids that are not in the store are left out."""
        with self._known(self.store.notes(np.array(ids, dtype=np.int64)), ids):
            return super().items(ids, condition)

    def hash_of(self, id: int) -> bytes | None:
        """Return the hash of the content with this id."""
        with self._known(self.store.notes(np.array([id], dtype=np.int64)), [id]):
            return super().hash_of(id)

    def hashes_of(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Return the hashes of the contents with these ids."""
        with self._known(self.store.notes(np.array(ids, dtype=np.int64)), ids):
            return super().hashes_of(ids)

    def moments(self) -> None:
        """Always None, because stores on servers have no videos."""

    def files(self, status: Status | None = None) -> list[File]:
        """Return every file; broken files are known only on the indexing machine."""
        with self._everything():
            return super().files(status)

    def everything(self) -> sqlite3.Connection:
        """Return a copy of the tables with all items: other threads replace rows of the original at any time."""
        copied = empty_catalog()
        with self._everything():
            self.connection.backup(copied)
        return copied

    def _everything(self) -> AbstractContextManager[None]:
        """Read the notes of all items, and hold the lock until the block ends."""
        notes = self.store.notes_where()
        with self._reading:
            gone = [id for id in super().ids() if id not in notes]
        return self._known(notes, gone)

    def narrowed(self, store: Store, where: str) -> tuple[Store, Ids | None]:
        """Return a view that the server filters or, if it cannot apply the filter, the store and the matching ids.

        An item matches if one of its files does. Servers keep the columns of one file per item, so the few items with
        several files are filtered here.
        """
        parsed = parse_where(where)
        single = Joined("and", (Test(FILES, "number", "=", (1,)), limited_to(parsed, CONTENT_FIELDS | FILE_FIELDS)))
        multiple = Joined("and", (Test(FILES, "number", ">", (1,)), limited_to(parsed, CONTENT_FIELDS)))
        if self.store.can_filter(single):
            passing = self._passing(self.store.notes_where(self._in_partitions(multiple, parsed)), where)
            if not len(passing):
                return self.store.where(self._in_partitions(single, parsed, single_files=True)), None
            if len(passing) <= _FEW:
                either = Joined("or", (single, Test("id", "number", "in", tuple(passing.tolist()))))
                return self.store.where(self._in_partitions(either, parsed)), None
        notes = self.store.notes_where(self._in_partitions(Joined("or", (single, multiple)), parsed))
        return self.store, self._passing(notes, where)

    def _in_partitions(self, filter: Filter, parsed: Filter, *, single_files: bool = False) -> Filter:
        """Limit a filter to the partitions that contain matches; single_files: it matches no item with several files.

        An item with several files is in the partition of one of them. The partitions are tested outside any `or`,
        because Milvus 2.3 searches no others even if another branch matches there.
        """
        keys = partition_keys_for(parsed, self.store.partition)
        if keys is None or (self.store.partition == "folder" and not single_files):
            return filter
        return Joined("and", (Test(PARTITION_KEY, "text", "in", tuple(keys)), filter))

    def ids_where(self, where: str) -> Ids:
        """Return the ids of the items with a file that matches a filter, in ascending order."""
        store, ids = self.narrowed(self.store, where)
        return store.ids() if ids is None else ids

    def _passing(self, notes: Mapping[int, Mapping[str, Any]], where: str) -> Ids:
        """Return the ids of the items in the notes that match a filter, which is evaluated here in SQL."""
        sql, values = to_sql(parse_where(where))
        ids, found = list(notes), set[int]()
        with self._known(notes, ()):
            for start in range(0, len(ids), _FEW):
                some = ", ".join(map(str, ids[start : start + _FEW]))
                found.update(id for (id,) in self.select(f"f.content {FROM} c.id IN ({some}) AND ({sql})", values))
        return np.array(sorted(found), dtype=np.int64)

    @contextmanager
    def _known(self, notes: Mapping[int, Mapping[str, Any]], ids: Iterable[int]) -> Iterator[None]:
        """Replace the rows of these ids with rows from the notes, and hold the lock until the block ends."""
        with self._reading:
            with self.transaction():
                self.delete_contents({*ids, *notes})
                for id, note in notes.items():
                    self._write(id, note)
            yield

    def _write(self, id: int, note: Mapping[str, Any]) -> None:
        names = ("width", "height", "taken", "latitude", "longitude", "text", "is_blank")
        self.connection.execute(
            f"INSERT OR REPLACE INTO contents (id, hash, {', '.join(names)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (id, bytes.fromhex(note["hash"]), *(note.get(name) for name in names)),
        )
        for root, path, raw, *others in note["files"]:
            number = self.root(Path(os.fsdecode(base64.b64decode(root))))
            self.connection.execute(
                "INSERT OR REPLACE INTO files (root, path, raw, line, key, size, mtime_ns, content, status) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'ready')",
                (number, path, base64.b64decode(raw), *others, id),
            )
