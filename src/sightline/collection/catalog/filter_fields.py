"""The fields that filters can test, such as `taken` and `width`. To add a field, add it to `FIELDS`."""

from typing import Literal, NamedTuple

from sightline.stores.filters import ColumnKind


class FilterField(NamedTuple):
    """A field that filters can test.

    kind: what its values are. sql: its SQL expression over `files f` and `contents c`.
    of: `content` if all files of an item have the same value, `file` if they may differ, `machine` if the value is
        known only on the machine that has the catalog. Stores on servers also keep `content` and `file` fields and
        filter by them; a Milvus store needs a placeholder for their unknown values in `milvus_filter.UNKNOWN`.
    """

    kind: ColumnKind
    sql: str
    of: Literal["content", "file", "machine"]


FIELDS: dict[str, FilterField] = {
    "path": FilterField("text", "f.path", "file"),
    "folder": FilterField("text", "f.folder", "file"),
    "name": FilterField("text", "f.name", "file"),
    "taken": FilterField("date", "c.taken", "content"),
    "modified": FilterField(
        "date", "strftime('%Y-%m-%dT%H:%M:%S', f.mtime_ns / 1000000000, 'unixepoch', 'localtime')", "file"
    ),
    "width": FilterField("number", "c.width", "content"),
    "height": FilterField("number", "c.height", "content"),
    "size": FilterField("number", "f.size", "file"),
    "latitude": FilterField("number", "c.latitude", "content"),
    "longitude": FilterField("number", "c.longitude", "content"),
    "duration": FilterField("number", "c.duration", "machine"),
    "text": FilterField("text", "c.text", "content"),
    "id": FilterField("number", "c.id", "content"),
    "album": FilterField("text", "value", "machine"),
    "root": FilterField("text", "(SELECT root_name(r.raw) FROM roots r WHERE r.id = f.root)", "machine"),
}
"""All fields, by their name in filters."""

CONTENT_FIELDS = frozenset(name for name, field in FIELDS.items() if field.of == "content")
FILE_FIELDS = frozenset(name for name, field in FIELDS.items() if field.of == "file")
STORED_FIELDS = {name: field for name, field in FIELDS.items() if field.of != "machine"}
"""The fields that stores on servers also keep."""
