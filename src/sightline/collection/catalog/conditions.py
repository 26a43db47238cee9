"""Translate filters to SQL."""

from typing import NamedTuple

from sightline.collection.catalog.filter_fields import FIELDS
from sightline.stores.filters import Filter, Joined, Negated, Test, Value


class Condition(NamedTuple):
    """An SQL condition on `files f` and `contents c`, and the values of its parameters."""

    sql: str
    values: tuple[Value, ...]


def to_sql(node: Filter) -> Condition:
    """Translate a filter to SQL."""
    if isinstance(node, Test):
        return _tested(node)
    if isinstance(node, Negated):
        part = to_sql(node.part)
        return Condition(f"NOT {part.sql}", part.values)
    assert isinstance(node, Joined), "only filters for servers are undecided"
    parts = [to_sql(part) for part in node.parts]
    values = tuple(value for part in parts for value in part.values)
    return Condition(f"({f' {node.word.upper()} '.join(part.sql for part in parts)})", values)


def _tested(test: Test) -> Condition:
    """Translate a test to SQL; dates are compared at the precision of the given value."""
    if test.column == "album":
        return _in_album(test)
    sql, values = FIELDS[test.column].sql, test.values
    if test.sign == "null":
        return Condition(f"{sql} IS NULL", ())
    if test.other is not None:
        return Condition(f"{sql} {test.sign} {FIELDS[test.other].sql}", ())
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
    """Translate a test of the albums that an item is in; `null` matches items in no album."""
    albums = "SELECT 1 FROM json_each(albums_of(c.hash))"
    if test.sign == "null":
        return Condition(f"NOT EXISTS ({albums})", ())
    if test.sign == "in":
        return Condition(f"EXISTS ({albums} WHERE value IN ({', '.join('?' * len(test.values))}))", test.values)
    if test.sign == "!=":
        return Condition(f"NOT EXISTS ({albums} WHERE value = ?)", test.values)
    return Condition(f"EXISTS ({albums} WHERE value {test.sign} ?)", test.values)
