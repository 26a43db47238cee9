"""Moments of videos in the catalog.

A video has one row of `contents` per moment, because each moment has its own vectors. The first represents the video:
files and albums belong to it, and it is the `parent` of the others.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.stores.base import Ids

_AT_ONCE = 500  # variables in one statement


@dataclass(frozen=True, slots=True)
class CatalogMoments:
    """The moments in a catalog. connection: returns the calling thread's connection to its tables."""

    connection: Callable[[], sqlite3.Connection]

    def exist(self) -> bool:
        """Return whether the catalog has any moments."""
        query = "SELECT EXISTS (SELECT 1 FROM contents WHERE moment IS NOT NULL)"
        return bool(self.connection().execute(query).fetchone()[0])

    def videos(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the id of each moment's video, by the moment's id; the ids of images are left out."""
        query = "SELECT id, coalesce(parent, id) FROM contents WHERE moment IS NOT NULL AND id IN"
        return {row[0]: row[1] for row in self._each(query, ids)}

    def items_of(self, ids: Ids) -> Ids:
        """Return the ids of the items that these images or moments belong to, in ascending order."""
        rows = self.connection().execute("SELECT id, parent FROM contents WHERE moment IS NOT NULL AND parent > 0")
        parents = dict(rows.fetchall())
        return np.unique(np.array([parents.get(id, id) for id in ids.tolist()], dtype=np.int64))

    def of(self, videos: Sequence[int]) -> dict[int, dict[int, float]]:
        """Return the moments of each of these videos, in chronological order: their ids and times in seconds."""
        found: dict[int, dict[int, float]] = {}
        own = "SELECT id, id, moment FROM contents WHERE moment IS NOT NULL AND id IN"
        others = "SELECT parent, id, moment FROM contents WHERE moment IS NOT NULL AND parent IN"
        for video, id, seconds in sorted((*self._each(own, videos), *self._each(others, videos)), key=_by_time):
            found.setdefault(video, {})[id] = seconds
        return found

    def within(self, ids: Ids) -> Ids:
        """Return these item ids, and the ids of all moments of the videos among them, in ascending order."""
        rows = self.connection().execute("SELECT id, parent FROM contents WHERE moment IS NOT NULL AND parent > 0")
        pairs = np.array(rows.fetchall(), dtype=np.int64).reshape(-1, 2)
        return np.union1d(ids, pairs[np.isin(pairs[:, 1], ids), 0])

    def families(self, ids: Sequence[int]) -> list[int]:
        """Return these ids, and the ids of all other moments of the same videos."""
        videos = self.videos(ids)
        return sorted({*ids, *(id for own in self.of(list(set(videos.values()))).values() for id in own)})

    def _each(self, query: str, ids: Sequence[int]) -> Iterable[tuple[int, ...]]:
        for start in range(0, len(ids), _AT_ONCE):
            some = [int(id) for id in ids[start : start + _AT_ONCE]]
            yield from self.connection().execute(f"{query} ({', '.join('?' * len(some))})", some).fetchall()


def _by_time(row: tuple[int, ...]) -> float:
    return row[2]
