"""Convert between rows of the catalog's tables and the objects they represent."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.collection.catalog.exif import Place
from sightline.collection.catalog.files import Facts, File, Item, Stamp, Status

FACTS = (
    "c.id, coalesce(c.parent, c.id), c.width, c.height, c.taken, c.latitude, c.longitude, c.text, c.is_blank,"
    " c.moment, c.duration"
)
FILE = "f.root, f.path, f.raw, f.status, f.reason, f.line, f.key, f.size, f.mtime_ns, f.ctime_ns"
ROW = "id, raw, size, mtime_ns, ctime_ns, content, status, reason, key"


@dataclass(frozen=True, slots=True)
class Row:
    """A file in the catalog. `stamp` is None if the file must be read again, even if it appears unchanged."""

    id: int
    raw: bytes
    stamp: Stamp | None
    content: int | None
    status: Status
    reason: str
    key: str | None = None


def to_row(row: tuple[Any, ...]) -> Row:
    """Convert the columns in `ROW` to a file."""
    id, raw, size, mtime_ns, ctime_ns, content, status, reason, key = row
    return Row(id, raw, to_stamp(size, mtime_ns, ctime_ns), content, status, reason, key)


def to_stamp(size: int | None, mtime_ns: int | None, ctime_ns: int | None) -> Stamp | None:
    """Return the stamp of a file; None if the file must be read again."""
    return None if size is None or mtime_ns is None else Stamp(size, mtime_ns, ctime_ns)


def inside(folder: Path, raw: bytes) -> Path:
    """Return a path that stays inside the folder, even for names such as /etc/hosts or ../x from an archive."""
    path = os.fsdecode(raw)
    if path.startswith("/") or ".." in path:
        path = "/".join("_" if name == ".." else name for name in path.split("/") if name)
    return folder / path


def to_item(row: tuple[Any, ...], files: tuple[File, ...]) -> Item:
    """Build an item from the columns in `FACTS` and its files; for a moment, the item is its video."""
    _, id, width, height, taken, latitude, longitude, text, is_blank, moment, duration = row
    place = None if latitude is None else Place(latitude, longitude)
    return Item(id, files, width, height, taken, place, text, bool(is_blank), moment, duration)


def from_facts(fact: Facts) -> tuple[object, ...]:
    """Return the column values of one row of `contents`, with the parent's hash in place of the `parent` id."""
    latitude, longitude = (fact.place.latitude, fact.place.longitude) if fact.place else (None, None)
    about = (fact.hash, fact.width, fact.height, fact.taken, latitude, longitude, fact.text, fact.is_blank or None)
    return (*about, fact.moment, fact.duration, fact.parent)
