"""A store on a Milvus server: many machines can search it while one writes.

An item is a row of the collection NAME: its id, its embedding and, if given, columns to filter by and a note with
everything else. Its fragments and states are rows of NAME_parts. Parts are written before the row and
deleted after it, so that no row ever lacks them. What the server has acknowledged is in its log and survives a crash.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.errors import StoreError
from sightline.stores import milvus_parts
from sightline.stores.base import (
    Columns,
    Ids,
    Neighbors,
    Note,
    Part,
    Partition,
    Shape,
    Stats,
    StoredImages,
)
from sightline.stores.filters import Filter
from sightline.stores.milvus_address import Address, Consistency, parse_address
from sightline.stores.milvus_filter import MILVUS_PARTITION_KEY, UNKNOWN, pushed
from sightline.stores.milvus_schema import (
    EMBEDDING,
    ID,
    KEY,
    LENGTH,
    NOTE,
    built_index,
    check_columns,
    load,
    make,
    parts_name,
    read_description,
)
from sightline.stores.milvus_search import MOST, merged, nearest
from sightline.stores.milvus_server import Server
from sightline.stores.packing import Records, checked_ids, pack, record_type, unit
from sightline.stores.ranking import nothing
from sightline.stores.server_store import ServerStore, closed_on_error, seconds_to_wait

_IDS = 4_096  # ids in one filter
_ITEMS = 512  # items written at once


class MilvusStore(ServerStore):
    """Keeps vectors on a server. Several threads can search a store at once; one process at a time writes.

    Scores are the cosines of the stored embeddings, which are rounded to float16 as in the local store, whatever the
    index. How many of the nearest items an index finds depends on its effort; `flat` finds all of them.
    """

    def __init__(self, server: Server, address: Address, shape: Shape, columns: Columns, write: bool) -> None:
        super().__init__(address, shape, columns, write)
        self.address, self._server, self._where = address, server, ""
        self._consistency: Consistency = "Session" if write else address.consistency

    @classmethod
    def open(
        cls,
        address: Address,
        shape: Shape,
        *,
        write: bool,
        columns: Columns | None = None,
        description: str = "",
        patience: float | None = None,
    ) -> "MilvusStore":
        """Open the store at an address; for writing, a missing store is created.

        columns: the columns to filter by. description: text to store with a new store.
        patience: seconds to wait for an unreachable server; by default long enough for a restart when writing.
        """
        columns = columns or {}
        check_columns(columns)
        server = Server(address, seconds_to_wait(write=write) if patience is None else patience)
        with closed_on_error(server):
            if write:
                make(server, address, shape, columns, description)
            elif read_description(server, address.name) is None:
                raise StoreError(f"{address}: no vectors are stored here", "Index some images first.")
            address = replace(address, index=built_index(server, address))
            load(server, address.name)
        return cls(server, address, shape, columns, write)

    @classmethod
    def normalize_url(cls, url: str) -> str:
        """Check a URL, and return its shortest form."""
        return str(parse_address(url))

    @classmethod
    def read_description(cls, url: str) -> str | None:
        """Return the text that was stored with the store at a URL; None if there is no store."""
        address = parse_address(url)
        with closing(Server(address, seconds_to_wait(write=False))) as server:
            return read_description(server, address.name)

    @classmethod
    def open_url(
        cls, url: str, shape: Shape, *, write: bool, columns: Columns, description: str = "", created_as: str = ""
    ) -> "MilvusStore":
        """Open the store at a URL; see `open`. created_as: the URL it was created with, which sets its partition."""
        address = replace(parse_address(url), partition=parse_address(created_as or url).partition)
        return cls.open(address, shape, write=write, columns=columns, description=description)

    @property
    def partition(self) -> Partition | None:
        """What the store is partitioned by, if anything."""
        return self.address.partition

    @property
    def pictures(self) -> StoredImages:
        """Always "none", because Milvus has no place for pictures."""
        return "none"

    def picture(self, id: int) -> bytes | None:
        """Always None, because Milvus has no place for pictures."""
        return None

    def can_filter(self, filter: Filter) -> bool:
        """Return whether the server can apply all of a filter."""
        return pushed(filter).is_exact

    def where(self, filter: Filter) -> "MilvusStore":
        """Return a read-only view of the items that pass a filter, which the server must fully support."""
        if not self.can_filter(filter):
            raise StoreError(f"{self.address}: Milvus cannot apply the whole filter")
        view = MilvusStore(self._server, self.address, self._shape, self._columns, write=False)
        view._where, view._consistency = _both(self._where, pushed(filter).filter), self._consistency
        return view

    def add(self, ids: Ids, encoded: Encoded, notes: Sequence[Note] | None = None) -> None:
        """Add items; raises an error and adds nothing if an id already exists.

        notes: further data on each item. Embeddings are scaled to unit length and rounded to float16; fragments and
        states are quantised to int8.
        """
        self._check_writable()
        packed = pack(ids, encoded, self.shape)
        if len(existing := self._among(packed.ids)):
            raise StoreError(f"{self.address}: id {existing.min()} already exists", "Delete it first to replace it.")
        for pieces in milvus_parts.piece_rows(packed):
            self._server.upsert(parts_name(self.address.name), pieces)
        empty = Note("", {name: "" if kind == "text" else 0.0 for name, kind in self._columns.items()}, {})
        rows = [
            {ID: id, EMBEDDING: vector, LENGTH: length, **_noted(note)}
            for id, vector, length, note in zip(
                packed.ids.tolist(),
                packed.embeddings.astype(np.float32),
                packed.lengths.tolist(),
                notes if notes is not None else [empty] * len(packed.ids),
                strict=True,
            )
        ]
        self._upsert(rows)

    def annotate(self, ids: Ids, notes: Sequence[Note]) -> None:
        """Replace the notes of items; unknown ids are ignored."""
        self._check_writable()
        wanted = dict(zip(checked_ids(ids).tolist(), notes, strict=True))
        rows = self._rows_of(ids, (ID, EMBEDDING, LENGTH))
        self._upsert([{**row, **_noted(wanted[row[ID]])} for row in rows])

    def notes(self, ids: Ids) -> dict[int, Mapping[str, Any]]:
        """Return the notes of items by id; unknown ids are left out."""
        return {row[ID]: row[NOTE] for row in self._rows_of(ids, (ID, NOTE))}

    def notes_where(self, filter: Filter | None = None) -> dict[int, Mapping[str, Any]]:
        """Return the notes of all items that pass a filter, and of others if Milvus can apply only part of it."""
        self._check_open()
        wanted = "" if filter is None else pushed(filter).filter
        return {row[ID]: row[NOTE] for row in self._all(wanted, (ID, NOTE))}

    def delete(self, ids: Ids) -> None:
        """Delete items; unknown ids are ignored."""
        self._check_writable()
        lengths = {row[ID]: row[LENGTH] for row in self._rows_of(ids, (ID, LENGTH))}
        keys = np.array(milvus_parts.keys_of(lengths, self.shape), dtype=np.int64)
        for some in _few(np.array(list(lengths), dtype=np.int64), _IDS):
            self._server.delete(self.address.name, f"{ID} in {some}")
        for some in _few(keys, _IDS):
            self._server.delete(parts_name(self.address.name), f"{KEY} in {some}")
        if lengths:
            self._wait("Strong")  # because Milvus 2.3 does not tell a session when it deleted something

    def flush(self) -> None:
        """Wait until every search can see what was written, which survives a crash of the server already."""
        super().flush()
        self._wait("Session")

    def ids(self) -> Ids:
        """Return all ids, in ascending order."""
        self._check_open()
        return np.sort(np.array([row[ID] for row in self._all("", (ID,))], dtype=np.int64))

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim]; ties go to the lower id.

        where: search only these ids. The filter is applied before ranking, so there are k results if enough items pass.
        """
        self._check_open()
        queries = unit(vectors, self.shape.embedding)
        if not 1 <= k <= MOST:
            raise StoreError(f"k cannot be {k}", f"Set k to at least 1 and at most {MOST:,}.")
        filters = [""] if where is None else [f"{ID} in {some}" for some in _few(np.unique(checked_ids(where)), _IDS)]
        best = nothing(len(queries), k)
        for filter in filters if len(queries) else ():
            found = nearest(self._server, self.address, queries, k, _both(self._where, filter), self._consistency)
            best = merged(best, found, k)
        return best

    def refresh(self) -> bool:
        """Do nothing: every search queries the server."""
        self._check_open()
        return False

    def compact(self) -> None:
        """Make the server write its in-memory data to segments, which it indexes and compacts itself."""
        self._check_writable()
        for name in (parts_name(self.address.name), self.address.name):
            self._server.ask(lambda client, name=name: client.flush(name, timeout=self._server.timeout))  # type: ignore[misc]

    def stats(self) -> Stats:
        """Return the number of items, bytes of their embeddings, and the index."""
        self._check_open()
        (row,) = self._server.query(self.address.name, self._where, ("count(*)",), self._consistency)
        items = int(row["count(*)"])
        return Stats(items, 4 * items * self.shape.embedding, f"milvus, {self.address.index}")

    def close(self) -> None:
        """Close the connection, which the store's views share; closing twice is allowed."""
        self._is_open = False
        self._server.close()

    def _wait(self, consistency: Consistency) -> None:
        """Wait until the server can search all writes, or for "Session" those of this store."""
        for name, key in ((self.address.name, ID), (parts_name(self.address.name), KEY)):
            self._server.query(name, f"{key} in [0]", (key,), consistency)

    def _embeddings(self, ids: Ids) -> Float32Array:
        return np.array([row[EMBEDDING] for row in self._each(ids, (ID, EMBEDDING))], dtype=np.float32)

    def _records(self, ids: Ids, part: Part, first: int | None) -> tuple[Records, Ids]:
        lengths = np.array([row[LENGTH] for row in self._each(ids, (ID, LENGTH))], dtype=np.int64)
        width, collection = getattr(self.shape, part), parts_name(self.address.name)
        records = milvus_parts.read(self._server, collection, checked_ids(ids), lengths, part, width, self._consistency)
        for id, own, length in zip(ids, records, lengths, strict=True):
            if len(own) != length:
                raise self._unknown(int(id))
        kept = np.concatenate([np.zeros(0, dtype=record_type(width)), *(own[:first] for own in records)])
        return kept, lengths if first is None else np.minimum(lengths, first)

    def _each(self, ids: Ids, fields: tuple[str, ...]) -> list[dict[str, Any]]:
        """Fetch one row per id, in order; raises an error for a missing id."""
        found = {row[ID]: row for row in self._rows_of(ids, fields)}
        for id in checked_ids(ids).tolist():
            if id not in found:
                raise self._unknown(id)
        return [found[id] for id in ids.tolist()]

    def _rows_of(self, ids: Ids, fields: tuple[str, ...]) -> list[dict[str, Any]]:
        self._check_open()
        rows: list[dict[str, Any]] = []
        for some in _few(np.unique(checked_ids(ids)), _IDS):
            rows += self._server.query(self.address.name, f"{ID} in {some}", fields, self._consistency)
        return rows

    def _all(self, filter: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
        wanted = _both(self._where, filter)
        if self._consistency == "Session":
            self._wait("Session")  # because iterators of pymilvus do not
        return self._server.query_all(self.address.name, wanted, fields, self._consistency)

    def _among(self, ids: Ids) -> Ids:
        return np.array([row[ID] for row in self._rows_of(ids, (ID,))], dtype=np.int64)

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        write = self._server.replace if self.partition else self._server.upsert
        for start in range(0, len(rows), _ITEMS):
            write(self.address.name, rows[start : start + _ITEMS])


def _noted(note: Note) -> dict[str, Any]:
    columns = {name: UNKNOWN[name] if value is None else value for name, value in note.columns.items()}
    return {MILVUS_PARTITION_KEY: note.partition_key, NOTE: dict(note.about), **columns}


def _both(one: str, other: str) -> str:
    return f"({one}) and ({other})" if one and other else one or other


def _few(ids: Ids, count: int) -> list[list[int]]:
    return [ids[start : start + count].tolist() for start in range(0, len(ids), count)]
