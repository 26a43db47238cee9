"""Partition keys of items, and the partitions that a filter needs to search."""

from collections.abc import Iterator, Mapping

from sightline.stores.base import Partition
from sightline.stores.filters import Filter, Joined, Sign, Test

_DIGITS: dict[Partition, int] = {"year": 4, "month": 7}
_FROM: tuple[Sign, ...] = ("=", ">=", ">")
_TO: tuple[Sign, ...] = ("=", "<=", "<")
_MOST = 400  # keys listed in one filter


def partition_key(columns: Mapping[str, str | float | None], partition: Partition | None) -> str:
    """Return the partition key of an item: its year or month, or its top folder; empty if unknown."""
    if partition == "folder":
        return _topmost(str(columns["folder"]))
    return "" if partition is None else str(columns["taken"] or "")[: _DIGITS[partition]]


def partition_keys_for(node: Filter, partition: Partition | None) -> list[str] | None:
    """Return the keys of all partitions that may contain matching items with a single file; None if any partition may.

    >>> from sightline.collection.catalog.where import parse_where
    >>> partition_keys_for(parse_where("taken >= '2021-11' and taken < '2022-02' and width > 9"), "month")
    ['2021-11', '2021-12', '2022-01', '2022-02']
    """
    tests = [test for test in _necessary(node) if test.values]
    if partition == "folder":
        folders = [test.values for test in tests if test.column == "folder" and test.sign in ("=", "in")]
        return sorted({_topmost(str(folder)) for folder in folders[0]}) if folders else None
    dates = [(test.sign, str(test.values[0])) for test in tests if test.column == "taken" and len(test.values) == 1]
    lows, highs = [date for sign, date in dates if sign in _FROM], [date for sign, date in dates if sign in _TO]
    if partition is None or not lows or not highs:
        return None
    low, high, digits = max(lows), min(highs), _DIGITS[partition]
    found = [key for key in _between(low, high, partition) if low[:digits] <= key <= high[:digits] + "~"]
    return found if len(found) <= _MOST else None


def _necessary(node: Filter) -> Iterator[Test]:
    """Yield the tests that every match of the filter must pass."""
    if isinstance(node, Test):
        yield node
    elif isinstance(node, Joined) and node.word == "and":
        for part in node.parts:
            yield from _necessary(part)


def _between(low: str, high: str, partition: Partition) -> Iterator[str]:
    for year in range(int(low[:4]), int(high[:4]) + 1):
        if partition == "year":
            yield f"{year:04}"
        else:
            yield from (f"{year:04}-{month:02}" for month in range(1, 13))


def _topmost(folder: str) -> str:
    return folder.split("/")[0]
