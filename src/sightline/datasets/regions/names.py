"""Finding the record of a name: every publisher of features names the same images differently."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from sightline.datasets.fields import key_of
from sightline.datasets.record import Record

_LAST_NUMBER = re.compile(r"(\d+)\D*$")
T = TypeVar("T")


class Names:
    """Records by the names of images.

    An image's name is that of its file, without folders and suffix. Where no record is called the same, that one is
    meant whose name ends in the same number, if there is only one: both 9 and coco_train2014_000000000009 mean
    COCO_train2014_000000000009.jpg.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._by_name = _unique((key_of(record.key), record) for record in records)
        numbered = ((_number(record.key), record) for record in records)
        self._by_number = _unique((number, record) for number, record in numbered if number is not None)

    def find(self, name: str) -> Record | None:
        """The record of the image that features are called after."""
        return self._by_name.get(key_of(name)) or self._by_number.get(_number(name))


def _number(name: str) -> int | None:
    digits = _LAST_NUMBER.search(key_of(name))
    return int(digits[1]) if digits else None


def _unique(pairs: Iterable[tuple[T, Record]]) -> dict[T | None, Record]:
    """Records with a unique name."""
    listed = list(pairs)
    counts = Counter(name for name, _ in listed)
    return {name: record for name, record in listed if counts[name] == 1}
