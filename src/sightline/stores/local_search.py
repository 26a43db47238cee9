"""Search a local store: exactly if it is small, or else by ranking candidates that sign codes select."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sightline.arrays import BoolArray, Float32Array
from sightline.stores.base import Ids, Neighbors
from sightline.stores.generation import Generation
from sightline.stores.ranking import nothing, top_k_rows
from sightline.stores.row_index import RowIndex
from sightline.stores.sign_codes import Codes, nearest_codes, sign_codes

_FEW = 16  # copying one code takes as long as comparing this many


@dataclass(frozen=True, slots=True)
class Effort:
    """How many candidates a search compares exactly; the defaults come from docs/index-choice.md.

    Up to `exact_up_to` items, all are compared. Beyond that, sign codes select the candidates: at least `candidates`,
    one in `items_per_candidate`, and `candidates_per_result` times k. Vectors with fewer than 512 dimensions have
    shorter codes, so they get proportionally more candidates.
    """

    exact_up_to: int = 10_000
    candidates: int = 2_048
    items_per_candidate: int = 256
    candidates_per_result: int = 20

    def candidates_for(self, items: int, k: int, dim: int) -> int:
        """Return the number of candidates for k results."""
        wanted = max(self.candidates, items // self.items_per_candidate, self.candidates_per_result * k)
        return wanted * -(-512 // dim)

    def is_exact(self, items: int) -> bool:
        """Return whether this many items are searched exactly."""
        return items <= self.exact_up_to


def search(
    files: Generation, row_index: RowIndex, queries: Float32Array, k: int, rows: Ids | None, effort: Effort
) -> Neighbors:
    """Find the k best items for each of the queries [queries, dim] among some live rows [n], or among all if None."""
    count = len(row_index) if rows is None else len(rows)
    if effort.is_exact(count):
        rows = np.flatnonzero(row_index.is_live) if rows is None else rows
        return top_k_rows(files.embeddings(rows), row_index.row_ids, rows, queries, k)
    want = effort.candidates_for(count, k, queries.shape[1])
    found = nothing(len(queries), k)
    nearest = _nearest(files, row_index, rows)
    for number, code in enumerate(sign_codes(queries)):
        near = nearest(code, want)
        one = top_k_rows(files.embeddings(near), row_index.row_ids, near, queries[number : number + 1], k)
        found.ids[number], found.scores[number] = one.ids[0], one.scores[0]
    return found


def _nearest(files: Generation, row_index: RowIndex, rows: Ids | None) -> Callable[[Codes, int], Ids]:
    """Return a function that finds the rows with the nearest codes; the codes of a few rows are copied once."""
    if rows is not None and len(rows) * _FEW < row_index.rows:
        picked = np.take(files.codes(rows), rows, axis=0)
        return lambda code, want: rows[nearest_codes(picked, code, want)]
    codes, allowed = files.codes(slice(None)), _allowed(row_index, rows)
    return lambda code, want: nearest_codes(codes, code, want, allowed)


def _allowed(row_index: RowIndex, rows: Ids | None) -> BoolArray | None:
    """Mask [rows] of the rows to search; None for all."""
    if rows is None:
        return None if len(row_index) == row_index.rows else row_index.is_live
    allowed = np.zeros(row_index.rows, dtype=np.bool_)
    allowed[rows] = True
    return allowed
