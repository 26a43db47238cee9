"""A store in a PostgreSQL database with pgvector: several machines can search it and write to it at once.

An item is a row of `items`: its id, its embedding in float16, columns to filter by, and a note with everything else.
`parts` has its fragments and states, `pictures` its picture. An item and everything that belongs to it are written in
one transaction, which is on the server's disk once the call returns.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.errors import StoreError
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
from sightline.stores.packing import Records, checked_ids, kept_parts, pack, record_type, unit
from sightline.stores.postgres_address import IndexName, PostgresAddress, parse_postgres_address
from sightline.stores.postgres_driver import run
from sightline.stores.postgres_filter import EVERYTHING, SqlCondition, to_condition, weakened
from sightline.stores.postgres_rows import Rows, delete_rows, insert_rows, replace_notes
from sightline.stores.postgres_schema import built_index, forget_writes, index_if_large, make, read_manifest
from sightline.stores.postgres_search import exact, nearest
from sightline.stores.postgres_server import PostgresServer
from sightline.stores.server_store import ServerStore, closed_on_error, seconds_to_wait

if TYPE_CHECKING:
    from sightline.stores.postgres_driver import Connection

_LOOK_SECONDS = 60
_EXACT_IDS = 20_000  # a search restricted to at most this many ids compares all of them


class PostgresStore(ServerStore):
    """Keeps vectors in a database. Several threads and processes can search a store and write to it at once.

    Scores are the cosines of the stored embeddings, which are rounded to float16 as in the local store, whatever the
    index. The index `hnsw` may miss some of the nearest items; `flat` finds all of them.
    """

    def __init__(
        self, server: PostgresServer, address: PostgresAddress, shape: Shape, columns: Columns, write: bool
    ) -> None:
        super().__init__(address, shape, columns, write)
        self.address, self._server, self._where = address, server, EVERYTHING
        self._index: IndexName = "flat"
        self._looked = 0.0
        self._version, self._items = -1, 0

    @classmethod
    def open(
        cls,
        address: PostgresAddress,
        shape: Shape,
        *,
        write: bool,
        columns: Columns | None = None,
        description: str = "",
        patience: float | None = None,
    ) -> "PostgresStore":
        """Open the store at an address; for writing, a missing store is created.

        columns: the columns to filter by. description: text to store with a new store.
        patience: seconds to wait for an unreachable server; by default long enough for a restart when writing.
        """
        columns = columns or {}
        server = PostgresServer(address, seconds_to_wait(write=write) if patience is None else patience)
        with closed_on_error(server):
            if write:
                make(server, address, shape, columns, description)
                forget_writes(server, address)
            elif read_manifest(server, address) is None:
                raise StoreError(f"{address}: no vectors are stored here", "Index some images first.")
            store = cls(server, address, shape, columns, write)
            store.refresh()
        return store

    @classmethod
    def normalize_url(cls, url: str) -> str:
        """Check a URL, and return its shortest form."""
        return str(parse_postgres_address(url))

    @classmethod
    def read_description(cls, url: str) -> str | None:
        """Return the text that was stored with the store at a URL; None if there is no store."""
        address = parse_postgres_address(url)
        with closing(PostgresServer(address, seconds_to_wait(write=False))) as server:
            return read_manifest(server, address)

    @classmethod
    def open_url(
        cls, url: str, shape: Shape, *, write: bool, columns: Columns, description: str = "", created_as: str = ""
    ) -> "PostgresStore":
        """Open the store at a URL; see `open`. created_as: the URL it was created with, which sets its index."""
        address = replace(parse_postgres_address(url), index=parse_postgres_address(created_as or url).index)
        return cls.open(address, shape, write=write, columns=columns, description=description)

    @property
    def partition(self) -> Partition | None:
        """Always None, because a PostgreSQL store is not partitioned."""
        return None

    @property
    def pictures(self) -> StoredImages:
        """The form in which the store keeps pictures, so that machines without the files can show them."""
        return self.address.pictures

    def can_filter(self, filter: Filter) -> bool:
        """Return whether the server can apply all of a filter."""
        return to_condition(filter, self._columns) is not None

    def where(self, filter: Filter) -> "PostgresStore":
        """Return a read-only view of the items that pass a filter, which the server must fully support."""
        condition = to_condition(filter, self._columns)
        if condition is None:
            raise StoreError(f"{self.address}: PostgreSQL cannot apply the whole filter")
        view = PostgresStore(self._server, self.address, self._shape, self._columns, write=False)
        view._where, view._index, view._looked = self._where.both(condition), self._index, self._looked
        return view

    def add(self, ids: Ids, encoded: Encoded, notes: Sequence[Note] | None = None) -> None:
        """Add items; raises an error and adds nothing if an id already exists.

        notes: further data on each item. Embeddings are scaled to unit length and rounded to float16; fragments and
        states are quantised to int8.
        """
        self._check_writable()
        rows = Rows.of(pack(ids, encoded, self.shape), notes)

        def call(connection: "Connection") -> None:
            self._items = insert_rows(connection, self.address, self._columns, rows)

        self._server.write(call)

    def annotate(self, ids: Ids, notes: Sequence[Note]) -> None:
        """Replace the notes of items; unknown ids are ignored, and pictures are kept."""
        self._check_writable()
        wanted = dict(zip(checked_ids(ids).tolist(), notes, strict=True))
        self._server.write(lambda connection: replace_notes(connection, self.address, self._columns, wanted))

    def notes(self, ids: Ids) -> dict[int, Mapping[str, Any]]:
        """Return the notes of items by id; unknown ids are left out."""
        return dict(self._rows("id, note", "id = ANY(%s)", [np.unique(checked_ids(ids)).tolist()]))

    def notes_where(self, filter: Filter | None = None) -> dict[int, Mapping[str, Any]]:
        """Return the notes of all items that pass a filter, and of others if the server can apply only part of it."""
        condition = EVERYTHING if filter is None else weakened(filter, self._columns)
        return dict(self._rows("id, note", condition.sql, condition.values))

    def picture(self, id: int) -> bytes | None:
        """Return the picture that was stored with an item: its thumbnail or its original bytes."""
        self._check_open()
        query = "SELECT data FROM {pictures} WHERE item = %s"
        rows = self._server.read(lambda connection: run(connection, self.address, query, [id], binary=True).fetchall())
        return bytes(rows[0][0]) if rows else None

    def delete(self, ids: Ids) -> None:
        """Delete items; unknown ids are ignored."""
        self._check_writable()
        numbers = checked_ids(ids).tolist()
        self._server.write(lambda connection: delete_rows(connection, self.address, numbers))

    def ids(self) -> Ids:
        """Return all ids, in ascending order."""
        return np.array([id for (id,) in self._rows("id", "true", [], "ORDER BY id")], dtype=np.int64)

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim]; ties go to the lower id.

        where: search only these ids. The filter is applied before ranking, so there are k results if enough items pass.
        """
        self._check_open()
        queries = unit(vectors, self.shape.embedding)
        if k < 1:
            raise StoreError(f"k cannot be {k}", "Set k to at least 1.")
        if self._index == "flat" and time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look_for_index()
        filter, search = self._where, nearest if self._index == "hnsw" else exact
        if where is not None:
            allowed = np.unique(checked_ids(where))
            filter = filter.both(SqlCondition("i.id = ANY(%s)", (allowed.tolist(),)))
            search = exact if len(allowed) <= _EXACT_IDS else search
        return search(self._server, self.address, queries, k, filter.sql, filter.values)

    def refresh(self) -> bool:
        """Return whether any process, including this one, has changed the store since the last call."""
        before = self._version
        ((self._version,),) = self._manifest("version")
        self._look_for_index()
        return before != self._version

    def compact(self) -> None:
        """Have the server reclaim the space of deleted items, and update its statistics for planning queries."""
        self._check_writable()

        def call(connection: "Connection") -> None:
            for table in ("items", "pictures", *(["parts"] if kept_parts(self.shape) else [])):
                run(connection, self.address, f"VACUUM (ANALYZE) {{{table}}}")

        self._server.maintain(call)

    def stats(self) -> Stats:
        """Return the number of items, bytes of their embeddings, and the index."""
        is_filtered = self._where != EVERYTHING
        ((items,),) = self._rows("count(*)", "true", []) if is_filtered else self._manifest("items")
        return Stats(items, 2 * items * self.shape.embedding, f"postgresql, {self._index}")

    def close(self) -> None:
        """Build an index if this process has made the store large, and close the connections, which its views share."""
        is_open, self._is_open = self._is_open, False
        try:
            if is_open and self.address.index == "auto" and self._index == "flat":
                index_if_large(self._server, self.address, self.shape, self._items)
        finally:
            self._server.close()

    def _embeddings(self, ids: Ids) -> Float32Array:
        return np.array([embedding for (embedding,) in self._each(ids, "embedding")], dtype=np.float32)

    def _records(self, ids: Ids, part: Part, first: int | None) -> tuple[Records, Ids]:
        kind = record_type(getattr(self.shape, part))
        data = "records" if first is None else f"substring(records FOR {first * kind.itemsize})"
        found = self._each(ids, f"(SELECT {data} FROM {{parts}} WHERE item = i.id AND part = %s)", [part])
        records = [np.frombuffer(own, dtype=kind) for (own,) in found]
        lengths = np.array([len(own) for own in records], dtype=np.int64)
        return np.concatenate([np.zeros(0, dtype=kind), *records]), lengths

    def _each(self, ids: Ids, columns: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Fetch the given columns, one row per id, in order; raises an error for a missing id."""
        numbers = checked_ids(ids).tolist()
        rows = self._rows(f"id, {columns}", "id = ANY(%s)", [*values, sorted(set(numbers))])
        found = {row[0]: row[1:] for row in rows}
        for id in numbers:
            if id not in found:
                raise self._unknown(id)
        return [found[id] for id in numbers]

    def _rows(self, columns: str, condition: str, values: Sequence[Any], order: str = "") -> list[tuple[Any, ...]]:
        self._check_open()
        query = f"SELECT {columns} FROM {{items}} i WHERE {condition} AND ({self._where.sql}) {order}"
        wanted = [*values, *self._where.values]
        return self._fetched(query, wanted)

    def _manifest(self, column: str) -> list[tuple[Any, ...]]:
        self._check_open()
        return self._fetched(f"SELECT {column} FROM {{manifest}}", [])

    def _fetched(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        def call(connection: "Connection") -> list[tuple[Any, ...]]:
            rows: list[tuple[Any, ...]] = run(connection, self.address, query, values, binary=True).fetchall()
            return rows

        return self._server.read(call)

    def _look_for_index(self) -> None:
        """Check for an index, because another process may have built one in the meantime."""
        self._index, self._looked = built_index(self._server, self.address), time.monotonic()
