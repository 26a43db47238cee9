"""Insert, annotate and delete the rows of items in PostgreSQL, within a transaction."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sightline.errors import StoreError
from sightline.stores.base import Columns, Note
from sightline.stores.packing import Packed
from sightline.stores.postgres_address import PostgresAddress
from sightline.stores.postgres_driver import driver, run, run_many
from sightline.stores.postgres_vectors import HalfVector

if TYPE_CHECKING:
    from sightline.stores.postgres_driver import Connection

_EMPTY = Note("", {}, {})


class Rows(NamedTuple):
    """Packed items and their notes."""

    packed: Packed
    notes: Sequence[Note]

    @classmethod
    def of(cls, packed: Packed, notes: Sequence[Note] | None) -> "Rows":
        """Return the rows of items; without notes, the values of their columns are unknown."""
        return cls(packed, [_EMPTY] * len(packed.ids) if notes is None else notes)


def insert_rows(connection: "Connection", address: PostgresAddress, columns: Columns, rows: Rows) -> int:
    """Insert items with their parts and pictures; raises an error if an id exists. Returns the new number of items."""
    packed, notes = rows
    ids = packed.ids.tolist()
    query = "SELECT min(id) FROM {items} WHERE id = ANY(%s)"
    (taken,) = run(connection, address, query, [ids]).fetchone()
    if taken is not None:
        raise _exists(address, taken)
    names = ["id", "embedding", "length", *columns, "note"]
    items = [
        [id, HalfVector(vector), length, *_values(columns, note), _written(note)]
        for id, vector, length, note in zip(ids, packed.embeddings, packed.lengths.tolist(), notes, strict=True)
    ]
    try:
        _insert(connection, address, "items", names, items)
    except driver().errors.UniqueViolation as error:  # another process was faster
        raise _exists(address, int(packed.ids.min())) from error
    _insert(connection, address, "parts", ["item", "part", "records"], list(_parts(packed)))
    pictures = [[id, note.picture] for id, note in zip(ids, notes, strict=True) if note.picture]
    _insert(connection, address, "pictures", ["item", "data"], pictures)
    return _count(connection, address, len(ids))


def replace_notes(
    connection: "Connection", address: PostgresAddress, columns: Columns, notes: Mapping[int, Note]
) -> None:
    """Replace the notes of items; unknown ids are ignored."""
    query = "SELECT id FROM {items} WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
    known = [id for (id,) in run(connection, address, query, [sorted(notes)]).fetchall()]
    changes = ", ".join(f'"{name}" = %s' for name in (*columns, "note"))
    values = [[*_values(columns, notes[id]), _written(notes[id]), id] for id in known]
    run_many(connection, address, f"UPDATE {{items}} SET {changes} WHERE id = %s", values)
    _count(connection, address, 0)


def delete_rows(connection: "Connection", address: PostgresAddress, ids: Sequence[int]) -> None:
    """Delete items and everything that belongs to them; unknown ids are ignored."""
    lock = "SELECT id FROM {items} WHERE id = ANY(%s) ORDER BY id FOR UPDATE"  # in a fixed order, to avoid deadlocks
    found = [id for (id,) in run(connection, address, lock, [list(ids)]).fetchall()]
    if found:
        run(connection, address, "DELETE FROM {items} WHERE id = ANY(%s)", [found])
        _count(connection, address, -len(found))


def _insert(
    connection: "Connection", address: PostgresAddress, table: str, columns: Sequence[str], rows: Sequence[Any]
) -> None:
    names = ", ".join(f'"{name}"' for name in columns)
    marks = ", ".join(["%s"] * len(columns))
    run_many(connection, address, f"INSERT INTO {{{table}}} ({names}) VALUES ({marks})", rows)


def _count(connection: "Connection", address: PostgresAddress, change: int) -> int:
    """Record in the manifest that the store has changed; returns its number of items.

    Call this last in a transaction, because from here on, others that change the store have to wait.
    """
    query = "UPDATE {manifest} SET version = version + 1, items = items + %s RETURNING items"
    (items,) = run(connection, address, query, [change]).fetchone()
    return int(items)


def _parts(packed: Packed) -> Iterator[list[Any]]:
    ends = np.cumsum(packed.lengths)
    starts = ends - packed.lengths
    for part, records in packed.parts.items():
        for id, start, end in zip(packed.ids.tolist(), starts.tolist(), ends.tolist(), strict=True):
            yield [id, part, records[start:end].tobytes()]


def _values(columns: Columns, note: Note) -> list[Any]:
    """Return the values of the columns; None for those that the note does not have."""
    return [storable(note.columns.get(name)) for name in columns]


def storable(value: str | float | None) -> str | float | None:
    """Convert a value to one that PostgreSQL can store: texts lose NUL characters and lone surrogates."""
    if not isinstance(value, str):
        return None if value is None else float(value)
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _written(note: Note) -> str:
    return json.dumps(note.about)


def _exists(address: PostgresAddress, id: int) -> StoreError:
    return StoreError(f"{address}: id {id} already exists", "Delete it first to replace it.")
