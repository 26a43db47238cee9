"""Notes about items, kept in a store on a server so that machines without the catalog can show and filter items."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.filter_fields import STORED_FIELDS
from sightline.collection.remote.partitions import partition_key
from sightline.stores.base import FILES, LOW_PATH, Note, Partition

_LONGEST = 15_000  # characters of a text to keep: at most 60,000 bytes
_ROOM = 60_000  # maximum size of a note in bytes
_VALUES = ", ".join(field.sql for field in STORED_FIELDS.values())
_ABOUT = "c.hash, c.is_blank, f.root, f.raw, f.line, f.key, f.size, f.mtime_ns"


def build_notes(catalog: Catalog, ids: Sequence[int], partition: Partition | None) -> list[Note]:
    """Build the notes for these items, in order. Every item must have a file."""
    roots = {number: _text(os.fsencode(root)) for number, root in catalog.roots().items()}
    rows: dict[int, list[tuple[Any, ...]]] = {id: [] for id in ids}
    query = f"SELECT {_VALUES}, {_ABOUT} FROM files f JOIN contents c ON c.id = f.content WHERE c.id IN"
    for row in catalog.each(query, ids, "ORDER BY f.root, f.line, f.raw"):
        rows[row[list(STORED_FIELDS).index("id")]].append(row)
    return [_note(roots, own, partition) for own in rows.values()]


def _note(roots: Mapping[int, str], rows: Sequence[tuple[Any, ...]], partition: Partition | None) -> Note:
    values = dict(zip(STORED_FIELDS, rows[0], strict=False))
    about = {name: values[name] for name in ("width", "height", "taken", "latitude", "longitude")}
    about["text"] = None if values["text"] is None else values["text"][:_LONGEST]
    hash, is_blank = rows[0][len(STORED_FIELDS) :][:2]
    about |= {"hash": hash.hex(), "is_blank": is_blank}
    files = [_file(roots, row) for row in rows]
    while len(json.dumps(about | {"files": files}).encode()) > _ROOM and len(files) > 1:
        files = files[: len(files) // 2]
    columns = {name: _column(values[name]) for name in STORED_FIELDS if name != "id"}
    columns |= {LOW_PATH: _low(columns["path"]), FILES: float(len(rows))}
    return Note(partition_key(columns, partition), columns, about | {"files": files})


def _file(roots: Mapping[int, str], row: tuple[Any, ...]) -> list[Any]:
    path = row[list(STORED_FIELDS).index("path")]
    _, _, root, raw, line, key, size, mtime_ns = row[len(STORED_FIELDS) :]
    return [roots[root], path, _text(raw), line, key, size, mtime_ns]


def _text(raw: bytes) -> str:
    """Encode the bytes of a path as base64."""
    return base64.b64encode(raw).decode("ascii")


def _column(value: Any) -> str | float | None:
    if value is None:
        return None
    return value[:_LONGEST] if isinstance(value, str) else float(value)


def _low(path: str | float | None) -> str:
    """Lower-case only the ASCII letters: Milvus filters by no others."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in str(path))
