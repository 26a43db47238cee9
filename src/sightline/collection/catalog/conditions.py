"""Translate filters to SQL."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from sightline.collection.catalog.filter_fields import FIELDS
from sightline.stores.filters import Filter, Joined, Negated, Test, Value, ascii_pattern

_KEPT = frozenset("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\N{KELVIN SIGN}")  # lower case: two letters, ASCII
_OTHERS = re.compile(f"[^{''.join(_KEPT)}]+")


class Condition(NamedTuple):
    """An SQL condition on `files f` and `contents c`, and the values of its parameters."""

    sql: str
    values: tuple[Value, ...]


def lower_letters(text: str | None) -> str | None:
    """Convert each letter to lower case, unless that would change the number of letters: `like` counts them.

    SQLite's LIKE ignores the case of ASCII letters only; catalogs have this function for the others. It never turns
    another letter into an ASCII letter, so a server that knows the case of ASCII letters only finds all matches.

    >>> lower_letters("ÄRGER, STRAẞE, ΟΔΟΣ")
    'ärger, straße, οδοσ'
    """
    if text is None:
        return None
    lower = text.lower() if _KEPT.isdisjoint(text) else _OTHERS.sub(lambda found: found.group().lower(), text)
    return lower.replace("ς", "σ")  # a sigma at the end of a word


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
        return _like(sql, values)
    if test.kind == "date":
        sign = "=" if test.sign == "in" else test.sign
        tests = [f"substr({sql}, 1, {len(str(value))}) {sign} ?" for value in values]
        return Condition(tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})", values)
    if test.sign == "in":
        return Condition(f"{sql} IN ({', '.join('?' * len(values))})", values)
    return Condition(f"{sql} {test.sign} ?", values)


def _like(sql: str, values: Sequence[Value]) -> Condition:
    """Translate `like` with one or several patterns."""
    patterns = [str(value) for value in values]
    in_ascii = tuple(dict.fromkeys(map(ascii_pattern, patterns)))
    like = _matches(sql, len(in_ascii))
    if all(pattern.isascii() for pattern in patterns):
        return Condition(like, in_ascii)
    # `lower_letters` is slow: it is called only for texts that match in ASCII and, because of LIMIT, once for each
    folded = f"(SELECT {_matches('low', len(patterns))} FROM (SELECT lower_letters({sql}) AS low LIMIT 1))"
    return Condition(f"({like} AND {folded})", (*in_ascii, *(lower_letters(pattern) or "" for pattern in patterns)))


def _matches(sql: str, count: int) -> str:
    tests = " OR ".join([f"{sql} LIKE ?"] * count)
    return tests if count == 1 else f"({tests})"


def _in_album(test: Test) -> Condition:
    """Translate a test of the albums that an item is in; `null` matches items in no album."""
    albums = "SELECT 1 FROM json_each(albums_of(c.hash))"
    if test.sign == "null":
        return Condition(f"NOT EXISTS ({albums})", ())
    if test.sign == "in":
        return Condition(f"EXISTS ({albums} WHERE value IN ({', '.join('?' * len(test.values))}))", test.values)
    if test.sign == "!=":
        return Condition(f"NOT EXISTS ({albums} WHERE value = ?)", test.values)
    compared = _like("value", test.values) if test.sign == "like" else Condition(f"value {test.sign} ?", test.values)
    return Condition(f"EXISTS ({albums} WHERE {compared.sql})", compared.values)
