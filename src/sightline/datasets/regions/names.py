"""Matching region features to records by image name: every publisher names the same images differently."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from sightline.datasets.fields import key_of
from sightline.datasets.record import Record

_LAST_NUMBER = re.compile(r"(?<![0-9a-z])([0-9]+)$", re.IGNORECASE)
T = TypeVar("T")


class Names:
    """Finds records by image name.

    The name of an image is its file name, without folders and suffix. If no record has that name, the record whose
    name ends in the same number is used, if there is only one: both 9 and coco_train2014_000000000009 match
    COCO_train2014_000000000009.jpg. Digits that follow a letter, as in a hash, are not a number.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._by_name = _unique((key_of(record.key), record) for record in records)
        numbered = ((_number(record.key), record) for record in records)
        self._by_number = _unique((number, record) for number, record in numbered if number is not None)

    def find(self, name: str) -> Record | None:
        """Return the record for an image's name in the features; None if there is none."""
        return self._by_name.get(key_of(name)) or self._by_number.get(_number(name))


def _number(name: str) -> int | None:
    digits = _LAST_NUMBER.search(key_of(name))
    return int(digits[1]) if digits else None


def _unique(pairs: Iterable[tuple[T, Record]]) -> dict[T | None, Record]:
    """Return the records whose name is unique, by name."""
    listed = list(pairs)
    counts = Counter(name for name, _ in listed)
    return {name: record for name, record in listed if counts[name] == 1}
