"""All items of a collection by time, newest first, for browsing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.collection.catalog.database import Catalog
from sightline.errors import QueryError
from sightline.stores.base import Ids

_TIME = (
    "coalesce(c.taken, strftime('%Y-%m-%dT%H:%M:%S', min(f.mtime_ns) / 1000000000, 'unixepoch', 'localtime'), '0000')"
)
_DIGITS = 14  # YYYYMMDDhhmmss


@dataclass(frozen=True, slots=True)
class Month:
    """A month of a timeline, such as `2023-08`, and its number of items; the name is empty for items without a date."""

    name: str
    items: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Ids ordered by time, newest first: a photo's capture time or, if unknown, its file's modification time.

    times: as numbers, such as 20230801123000; 0 if unknown.
    """

    ids: Ids
    times: npt.NDArray[np.int64]

    @classmethod
    def of(cls, catalog: Catalog) -> "Timeline":
        """Return the timeline of all items of a catalog."""
        rows = (
            catalog.everything()
            .execute(f"SELECT c.id, {_TIME} FROM files f JOIN contents c ON c.id = f.content GROUP BY c.id")
            .fetchall()
        )
        ids = np.array([id for id, _ in rows], dtype=np.int64)
        times = np.array([_number(time) for _, time in rows], dtype=np.int64)
        order = np.lexsort((-ids, -times))
        return cls(ids[order], times[order])

    @classmethod
    def merged(cls, parts: Sequence[tuple["Timeline", int]]) -> "Timeline":
        """Merge timelines; the number paired with each is added to its ids."""
        ids = np.concatenate([part.ids + first for part, first in parts])
        times = np.concatenate([part.times for part, _ in parts])
        order = np.lexsort((-ids, -times))
        return cls(ids[order], times[order])

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, ids: Ids) -> "Timeline":
        """Return the timeline of only these ids."""
        chosen = np.isin(self.ids, ids)
        return Timeline(self.ids[chosen], self.times[chosen])

    def months(self) -> list[Month]:
        """Return the months that have items, newest first."""
        months, counts = np.unique(self.times // 10**8, return_counts=True)
        return [
            Month(f"{month // 100:04}-{month % 100:02}" if month else "", int(count))
            for month, count in zip(months[::-1].tolist(), counts[::-1], strict=True)
        ]

    def cursor(self, place: int) -> str:
        """Return the cursor of the item at a position, from which `after` continues."""
        return f"{self.times[place]}-{self.ids[place]}"

    def after(self, cursor: str) -> int:
        """Return the position after a cursor's item, or where the item would be if it has been deleted."""
        found = re.fullmatch(r"(\d{1,14})-(\d{1,18})", cursor, re.ASCII)
        if not found:
            raise QueryError(f"no such cursor: {cursor[:40]!r}", "Pass the value of `next` from the previous response.")
        time, id = int(found[1]), int(found[2])
        first = int(np.searchsorted(-self.times, -time, "left"))
        last = int(np.searchsorted(-self.times, -time, "right"))
        return first + int(np.searchsorted(-self.ids[first:last], -id, "right"))


def _number(time: str) -> int:
    """Convert an ISO 8601 time to a number; 0 if it is unknown.

    >>> _number("2023-08-01T12:30:00+02:00"), _number("2023"), _number("0000")
    (20230801123000, 20230000000000, 0)
    """
    return int(re.sub(r"\D", "", time[:19]).ljust(_DIGITS, "0") or 0)
