"""A filter as a tree of tests on columns, which each kind of store translates to its own query language."""

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Literal

ColumnKind = Literal["text", "number", "date"]
Value = str | int | float
Sign = Literal["=", "!=", "<", "<=", ">", ">=", "like", "in", "null"]


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of a column with values or another column; the sign `null` tests for an unknown value.

    `in` and `like` are true if any of the values is equal or matches; every other sign takes one value.
    """

    column: str
    kind: ColumnKind
    sign: Sign
    values: tuple[Value, ...] = ()
    other: str | None = None


@dataclass(frozen=True, slots=True)
class Negated:
    """The negation of a filter."""

    part: "Filter"


@dataclass(frozen=True, slots=True)
class Joined:
    """Several filters joined by AND or OR."""

    word: Literal["and", "or"]
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Undecided:
    """A test that a store cannot apply: all items pass both it and its negation, and the caller tests them again."""


Filter = Test | Negated | Joined | Undecided


def ascii_pattern(pattern: str) -> str:
    """Return a pattern of `like` that matches the same texts and more: any character for each letter beyond ASCII.

    Databases know the case of ASCII letters only.

    >>> ascii_pattern("%ärger%")
    '%_rger%'
    """
    return re.sub(r"[^\0-\x7f]", "_", pattern)


def limited_to(filter: Filter, columns: Container[str]) -> Filter:
    """Return the filter with every test of other columns replaced by `Undecided`."""
    if isinstance(filter, Negated):
        return Negated(limited_to(filter.part, columns))
    if isinstance(filter, Joined):
        return replace(filter, parts=tuple(limited_to(part, columns) for part in filter.parts))
    if isinstance(filter, Test) and not all(name in columns for name in (filter.column, filter.other or filter.column)):
        return Undecided()
    return filter
