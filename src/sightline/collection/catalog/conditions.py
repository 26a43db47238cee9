"""A parsed filter as a tree of tests, and its translation to SQL."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

ColumnKind = Literal["text", "number", "date"]
Value = str | int | float
Sign = Literal["=", "!=", "<", "<=", ">", ">=", "like", "in", "null"]

COLUMNS: dict[str, tuple[ColumnKind, str]] = {
    "path": ("text", "f.path"),
    "folder": ("text", "f.folder"),
    "name": ("text", "f.name"),
    "taken": ("date", "c.taken"),
    "modified": ("date", "strftime('%Y-%m-%dT%H:%M:%S', f.mtime_ns / 1000000000, 'unixepoch', 'localtime')"),
    "width": ("number", "c.width"),
    "height": ("number", "c.height"),
    "size": ("number", "f.size"),
    "latitude": ("number", "c.latitude"),
    "longitude": ("number", "c.longitude"),
    "text": ("text", "c.text"),
    "id": ("number", "c.id"),
    "album": ("text", "value"),
    "root": ("text", "(SELECT root_name(r.raw) FROM roots r WHERE r.id = f.root)"),
}
"""The columns available to filters: the kind of each, and its SQL expression over `files f` and `contents c`."""

STORED_COLUMNS = {name: column for name, column in COLUMNS.items() if name not in ("album", "root")}
"""The columns that are also kept by a store on a server."""


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of a column with values or another column; the sign `null` tests for an unknown value."""

    column: str
    sign: Sign
    values: tuple[Value, ...] = ()
    other: str | None = None

    @property
    def kind(self) -> ColumnKind:
        """The kind of values in the column."""
        return COLUMNS[self.column][0]


@dataclass(frozen=True, slots=True)
class Negated:
    """The negation of a condition."""

    part: "Node"


@dataclass(frozen=True, slots=True)
class Joined:
    """Several conditions joined by AND or OR."""

    word: Literal["and", "or"]
    parts: tuple["Node", ...]


Node = Test | Negated | Joined


class Condition(NamedTuple):
    """SQL over `files f` and `contents c`, and the values of its parameters."""

    sql: str
    values: tuple[Value, ...]


def to_sql(node: Node) -> Condition:
    """Translate a tree to SQL."""
    if isinstance(node, Test):
        return _tested(node)
    if isinstance(node, Negated):
        part = to_sql(node.part)
        return Condition(f"NOT {part.sql}", part.values)
    parts = [to_sql(part) for part in node.parts]
    values = tuple(value for part in parts for value in part.values)
    return Condition(f"({f' {node.word.upper()} '.join(part.sql for part in parts)})", values)


def _tested(test: Test) -> Condition:
    """Translate a test to SQL; dates are compared at the precision of the given value."""
    if test.column == "album":
        return _in_album(test)
    sql, values = COLUMNS[test.column][1], test.values
    if test.sign == "null":
        return Condition(f"{sql} IS NULL", ())
    if test.other is not None:
        return Condition(f"{sql} {test.sign} {COLUMNS[test.other][1]}", ())
    if test.sign == "like":
        return Condition(f"{sql} LIKE ?", values)
    if test.kind == "date":
        sign = "=" if test.sign == "in" else test.sign
        tests = [f"substr({sql}, 1, {len(str(value))}) {sign} ?" for value in values]
        return Condition(tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})", values)
    if test.sign == "in":
        return Condition(f"{sql} IN ({', '.join('?' * len(values))})", values)
    return Condition(f"{sql} {test.sign} ?", values)


def _in_album(test: Test) -> Condition:
    """Test the albums that an item is in; `null` matches items in no album."""
    albums = "SELECT 1 FROM json_each(albums_of(c.hash))"
    if test.sign == "null":
        return Condition(f"NOT EXISTS ({albums})", ())
    if test.sign == "in":
        return Condition(f"EXISTS ({albums} WHERE value IN ({', '.join('?' * len(test.values))}))", test.values)
    if test.sign == "!=":
        return Condition(f"NOT EXISTS ({albums} WHERE value = ?)", test.values)
    return Condition(f"EXISTS ({albums} WHERE value {test.sign} ?)", test.values)
