"""Map ids to rows of a store's files."""

import numpy as np
import numpy.typing as npt

from sightline.stores.base import Ids

_GAPS = 2  # up to this ratio of largest id to count, a table is no larger than sorted ids and rows
_RECENT = 65_536  # recent ids kept in a dict before they are merged into the sorted ones


class RowIndex:
    """The id of each row, in order, and which rows are live.

    A deleted id may be added again; its old row stays, marked as deleted, until the store is compacted.
    """

    def __init__(self, ids: Ids, deleted: Ids) -> None:
        self._ids = np.array(ids, dtype=np.int64)
        self._is_live = np.ones(len(ids), dtype=np.bool_)
        self._is_live[deleted] = False
        self.rows = len(ids)
        self._items = int(self._is_live.sum())
        self._sort()

    def __len__(self) -> int:
        return self._items

    @property
    def row_ids(self) -> Ids:
        """The id of every row [rows], deleted or not."""
        return self._ids[: self.rows]

    @property
    def is_live(self) -> npt.NDArray[np.bool_]:
        """Whether each row [rows] is live."""
        return self._is_live[: self.rows]

    def ids(self) -> Ids:
        """Return all live ids, in ascending order."""
        return np.sort(self.row_ids[self.is_live])

    def find(self, ids: Ids) -> Ids:
        """Return the row of each id [n]; -1 for unknown ids."""
        rows = np.full(len(ids), -1, dtype=np.int64)
        if self._row_at is not None:
            rows = self._row_at[np.minimum(ids, len(self._row_at) - 1)]
        elif len(self._sorted_ids):
            places = np.searchsorted(self._sorted_ids, ids)
            places[places == len(self._sorted_ids)] = 0
            rows = np.where(self._sorted_ids[places] == ids, self._sorted_rows[places], -1)
        if self.rows:
            rows[~self._is_live[rows]] = -1
        if self._recent:
            for place in np.flatnonzero(rows < 0):
                rows[place] = self._recent.get(int(ids[place]), -1)
        return rows

    def rows_of(self, ids: Ids) -> Ids:
        """Return the unique rows of the known ids [n], in ascending order."""
        if self._row_at is None:
            ids = np.sort(ids, kind="stable")  # looking up half a million sorted ids is ten times as fast
        rows = self.find(ids)
        is_among = np.zeros(self.rows, dtype=np.bool_)
        is_among[rows[rows >= 0]] = True
        return np.flatnonzero(is_among)

    def append(self, ids: Ids) -> None:
        """Assign the next rows to these ids, none of which may exist."""
        first, last = self.rows, self.rows + len(ids)
        if last > len(self._ids):
            more = max(last, len(self._ids) * 3 // 2) - len(self._ids)
            self._ids = np.concatenate([self._ids, np.zeros(more, dtype=np.int64)])
            self._is_live = np.concatenate([self._is_live, np.zeros(more, dtype=np.bool_)])
        self._ids[first:last] = ids
        self._is_live[first:last] = True
        self.rows, self._items = last, self._items + len(ids)
        self._recent.update(zip(ids.tolist(), range(first, last), strict=True))
        if len(self._recent) > _RECENT:
            self._sort()

    def remove(self, rows: Ids) -> None:
        """Mark live rows as deleted."""
        self._is_live[rows] = False
        self._items -= len(rows)
        for row in rows.tolist():
            self._recent.pop(int(self._ids[row]), None)

    def _sort(self) -> None:
        """Build the lookup of live rows: a table if ids have few gaps, as is usual, or else sorted ids."""
        self._recent: dict[int, int] = {}
        self._row_at: Ids | None = None
        rows = np.flatnonzero(self.is_live)
        ids = self._ids[rows]
        if len(ids) and ids.max() < _GAPS * len(ids):
            self._row_at = np.full(ids.max() + 2, -1, dtype=np.int64)  # the last entry is for all larger ids
            self._row_at[ids] = rows
            rows = ids = rows[:0]
        order = np.argsort(ids, kind="stable")
        self._sorted_ids, self._sorted_rows = ids[order], rows[order]
