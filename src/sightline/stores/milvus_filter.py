"""Translate a filter to Milvus, as far as possible, so that the servers do the filtering.

Milvus 2.3 has no NULL: unknown values are stored as placeholders, which every test excludes, as SQL excludes NULL. A
test that Milvus cannot express, such as `like '%beach%'`, lets everything pass: the filter is then inexact, and the
caller filters the results again.
"""

import json
import math
from typing import NamedTuple

from sightline.stores.base import LOW_PATH, PARTITION_KEY
from sightline.stores.filters import ColumnKind, Filter, Negated, Sign, Test, Undecided, Value

UNKNOWN: dict[str, str | float] = {
    "taken": "",
    "modified": "",
    "text": "",
    "width": -1.0,
    "height": -1.0,
    "size": -1.0,
    "latitude": 999.0,
    "longitude": 999.0,
}
"""Placeholders for unknown values, by column."""

MILVUS_PARTITION_KEY = "shelf"
"""The name that the partition key has in existing stores."""

_LISTED = {"id": "id", PARTITION_KEY: MILVUS_PARTITION_KEY}
"""Columns tested by `in` with long lists of values, and their names in Milvus."""

_OPPOSITE: dict[Sign, Sign] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Pushed(NamedTuple):
    """A filter for Milvus, empty if everything passes, and whether it is exact."""

    filter: str
    is_exact: bool


_CANNOT_SAY = Pushed("", False)


def pushed(node: Filter, wanted: bool = True) -> Pushed:
    """Translate a filter or, if `wanted` is False, its negation."""
    if isinstance(node, Undecided):
        return _CANNOT_SAY
    if isinstance(node, Negated):
        return pushed(node.part, not wanted)
    if isinstance(node, Test):
        return _tested(node, wanted)
    parts = [pushed(part, wanted) for part in node.parts]
    return _joined(parts, all_must_hold=(node.word == "and") == wanted)


def _joined(parts: list[Pushed], *, all_must_hold: bool) -> Pushed:
    filters = [f"({part.filter})" for part in parts if part.filter]
    is_exact = all(part.is_exact for part in parts)
    if all_must_hold:
        return Pushed(" and ".join(filters), is_exact)
    return Pushed(" or ".join(filters), is_exact) if len(filters) == len(parts) else _CANNOT_SAY


def _tested(test: Test, wanted: bool) -> Pushed:
    if test.sign == "null":
        return _unknown(test.column, wanted)
    said = _matched(test, wanted) if test.sign == "like" else _compared(test, wanted)
    known = [f"{column} != {_written(UNKNOWN[column])}" for column in (test.column, test.other) if column in UNKNOWN]
    return said if not said.filter else Pushed(" and ".join([*known, f"({said.filter})"]), said.is_exact)


def _unknown(column: str, wanted: bool) -> Pushed:
    if column not in UNKNOWN:
        return Pushed("id < 0" if wanted else "id >= 0", True)
    return Pushed(f"{column} {'==' if wanted else '!='} {_written(UNKNOWN[column])}", True)


def _matched(test: Test, wanted: bool) -> Pushed:
    parts = [_like(test.column, str(pattern), wanted) for pattern in test.values]
    return parts[0] if len(parts) == 1 else _joined(parts, all_must_hold=not wanted)


def _like(column: str, pattern: str, wanted: bool) -> Pushed:
    """Translate `like` for ASCII prefixes only, on the column in lower case, because `like` ignores case."""
    start = pattern.split("%")[0].split("_")[0]
    is_exact = pattern == f"{start}%"
    if column != "path" or not start or not start.isascii() or not _is_plain(start) or not (wanted or is_exact):
        return _CANNOT_SAY
    return Pushed(_beginning(LOW_PATH, start.lower(), wanted), is_exact)


def _compared(test: Test, wanted: bool) -> Pushed:
    if test.other is not None:
        sign = test.sign if wanted else _OPPOSITE[test.sign]
        return Pushed(f"{test.column} {_milvus(sign)} {test.other}", True) if test.kind == "number" else _CANNOT_SAY
    if not all(_can_be_written(test.column, value) for value in test.values):
        return _CANNOT_SAY
    if test.sign == "in" and test.column in _LISTED and wanted:
        return Pushed(f"{_LISTED[test.column]} in {_written(test.values)}", True)
    sign = "=" if test.sign == "in" else test.sign
    filters = [
        Pushed(_one(test.column, test.kind, sign if wanted else _OPPOSITE[sign], value), True) for value in test.values
    ]
    return _joined(filters, all_must_hold=not wanted)


def _one(column: str, kind: ColumnKind, sign: Sign, value: Value) -> str:
    """Translate a comparison with a value; dates are compared at the precision given."""
    if kind != "date" or sign in ("<", ">="):
        return f"{column} {_milvus(sign)} {_written(value)}"
    if sign in ("=", "!="):
        return _beginning(column, str(value), sign == "=")
    return f"{column} {'<' if sign == '<=' else '>='} {_written(_after(str(value)))}"


def _beginning(column: str, start: str, wanted: bool) -> str:
    """Build a condition for texts that begin with `start` or, if `wanted` is False, for those that do not."""
    first, after = _written(start), _written(_after(start))
    return f"{column} >= {first} and {column} < {after}" if wanted else f"{column} < {first} or {column} >= {after}"


def _after(start: str) -> str:
    """Return the smallest string greater than every string with this prefix, which must end in an ASCII character."""
    return start[:-1] + chr(ord(start[-1]) + 1)


def _milvus(sign: Sign) -> str:
    return "==" if sign == "=" else sign


def _can_be_written(column: str, value: Value) -> bool:
    if isinstance(value, str):
        return _is_plain(value)
    if column == "id":
        return isinstance(value, int)
    return math.isfinite(value) and abs(value) < 1e15


def _is_plain(text: str) -> bool:
    """Return whether a text needs no escaping when quoted."""
    return text.isprintable() and not set(text) & set("\\\"'")


def _written(value: Value | tuple[Value, ...]) -> str:
    return json.dumps(value, ensure_ascii=False)
