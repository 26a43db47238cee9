"""Translate filters to PostgreSQL's SQL. Values are always passed as parameters; columns must be known."""

from dataclasses import replace
from typing import NamedTuple

from sightline.stores.base import Columns
from sightline.stores.filters import Filter, Joined, Negated, Test, Undecided, ascii_pattern
from sightline.stores.postgres_rows import storable
from sightline.stores.postgres_schema import quoted


class SqlCondition(NamedTuple):
    """A condition on a row `i` of the items, with `%s` in place of each value."""

    sql: str
    values: tuple[object, ...] = ()

    def both(self, other: "SqlCondition") -> "SqlCondition":
        """Return a condition that holds if both conditions do."""
        return SqlCondition(f"({self.sql}) AND ({other.sql})", self.values + other.values)


EVERYTHING = SqlCondition("true")


def to_condition(filter: Filter, columns: Columns) -> SqlCondition | None:
    """Translate a filter; None if the server cannot apply it.

    It can test the id and these columns, and ignore the case of ASCII letters.
    """
    if isinstance(filter, Undecided):
        return None
    if isinstance(filter, Test):
        names = [filter.column] if filter.other is None else [filter.column, filter.other]
        is_known = all(name == "id" or name in columns for name in names)
        return _tested(filter) if is_known and _is_ascii(filter) else None
    if isinstance(filter, Negated):
        part = to_condition(filter.part, columns)
        return None if part is None else SqlCondition(f"NOT ({part.sql})", part.values)
    found = [to_condition(part, columns) for part in filter.parts]
    parts = [part for part in found if part is not None]
    return _joined(filter.word, parts) if len(parts) == len(found) else None


def weakened(filter: Filter, columns: Columns) -> SqlCondition:
    """Translate as much of a filter as possible; the result passes all items that the filter does, or more."""
    whole = to_condition(filter, columns)
    if whole is not None:
        return whole
    if isinstance(filter, Test) and not _is_ascii(filter):
        return weakened(replace(filter, values=tuple(ascii_pattern(str(one)) for one in filter.values)), columns)
    if not isinstance(filter, Joined):
        return EVERYTHING
    parts = [weakened(part, columns) for part in filter.parts]
    if filter.word == "or":
        return EVERYTHING if EVERYTHING in parts else _joined("or", parts)
    kept = [part for part in parts if part != EVERYTHING]
    return _joined("and", kept) if kept else EVERYTHING


def _is_ascii(test: Test) -> bool:
    """Return whether collation C suffices to ignore case, as `like` does; it knows the case of ASCII letters only."""
    return test.sign != "like" or all(str(value).isascii() for value in test.values)


def _joined(word: str, parts: list[SqlCondition]) -> SqlCondition:
    values = tuple(value for part in parts for value in part.values)
    return SqlCondition(f" {word.upper()} ".join(f"({part.sql})" for part in parts), values)


def _tested(test: Test) -> SqlCondition:
    """Translate a test with the same meaning as in SQLite; dates are compared at the precision of the given value."""
    sql = _column(test.column)
    if test.sign == "null":
        return SqlCondition(f"{sql} IS NULL")
    if test.other is not None:
        return SqlCondition(f"{sql} {test.sign} {_column(test.other)}")
    values = tuple(storable(value) for value in test.values)
    if test.sign == "like":
        like = f"lower({sql}) LIKE lower(%s COLLATE \"C\") ESCAPE ''"
        return SqlCondition(" OR ".join([like] * len(values)), values)
    if test.kind == "date":
        sign = "=" if test.sign == "in" else test.sign
        tests = [f"substr({sql}, 1, {len(str(value))}) {sign} %s" for value in test.values]
        return SqlCondition(" OR ".join(tests), values)
    if test.column == "id" and all(isinstance(value, int) for value in test.values) and test.sign in ("=", "in"):
        return SqlCondition("i.id = ANY(%s::bigint[])", (list(test.values),))
    if test.sign == "in":
        return SqlCondition(f"{sql} = ANY(%s)", (list(values),))
    return SqlCondition(f"{sql} {test.sign} %s", values)


def _column(name: str) -> str:
    return "i.id::double precision" if name == "id" else f"i.{quoted(name)}"
