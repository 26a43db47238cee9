"""Translate filters to SQL."""

from functools import cache
from typing import NamedTuple

from sightline.collection.catalog.filter_fields import FIELDS
from sightline.stores.filters import Filter, Joined, Negated, Test, Value, ascii_pattern


class Condition(NamedTuple):
    """An SQL condition on `files f` and `contents c`, and the values of its parameters."""

    sql: str
    values: tuple[Value, ...]


def lower_letters(text: str | None) -> str | None:
    """Convert each letter to lower case, unless that would change the number of letters: `like` counts them.

    SQLite's LIKE ignores the case of ASCII letters only; catalogs have this function for the others. A letter beyond
    ASCII never becomes one of ASCII, so servers may compare those by themselves.

    >>> lower_letters("ÄRGER, STRAẞE, ΟΔΟΣ")
    'ärger, straße, οδοσ'
    """
    return text if text is None else text.lower() if text.isascii() else "".join(map(_lower, text))


@cache
def _lower(letter: str) -> str:
    forms = (letter.lower().casefold(), letter.lower())  # casefold: a sigma at the end of a word is another letter
    return next((one for one in forms if len(one) == 1 and one.isascii() == letter.isascii()), letter)


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
        return _like(sql, str(values[0]))
    if test.kind == "date":
        sign = "=" if test.sign == "in" else test.sign
        tests = [f"substr({sql}, 1, {len(str(value))}) {sign} ?" for value in values]
        return Condition(tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})", values)
    if test.sign == "in":
        return Condition(f"{sql} IN ({', '.join('?' * len(values))})", values)
    return Condition(f"{sql} {test.sign} ?", values)


def _like(sql: str, pattern: str) -> Condition:
    """Translate `like`; texts that do not match in ASCII are spared the function, which takes ten times as long."""
    if pattern.isascii():
        return Condition(f"{sql} LIKE ?", (pattern,))
    lower = lower_letters(pattern) or ""
    return Condition(f"({sql} LIKE ? AND lower_letters({sql}) LIKE ?)", (ascii_pattern(pattern), lower))


def _in_album(test: Test) -> Condition:
    """Translate a test of the albums that an item is in; `null` matches items in no album."""
    albums = "SELECT 1 FROM json_each(albums_of(c.hash))"
    if test.sign == "null":
        return Condition(f"NOT EXISTS ({albums})", ())
    if test.sign == "in":
        return Condition(f"EXISTS ({albums} WHERE value IN ({', '.join('?' * len(test.values))}))", test.values)
    if test.sign == "!=":
        return Condition(f"NOT EXISTS ({albums} WHERE value = ?)", test.values)
    compared = (
        _like("value", str(test.values[0])) if test.sign == "like" else Condition(f"value {test.sign} ?", test.values)
    )
    return Condition(f"EXISTS ({albums} WHERE {compared.sql})", compared.values)
