"""Results of a scan, with ties, so that the caller can decide which of equal scores comes first."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array

Ids = npt.NDArray[np.int64]


class Near(NamedTuple):
    """For each query every row that is as near as its k-th best, and perhaps more, best first: [queries, n].

    Where a query has fewer, rows are -1 and scores -inf.
    """

    rows: Ids
    scores: Float32Array

    def best(self, keys: Ids, k: int) -> tuple[Float32Array, Ids]:
        """The k highest scores and their keys, both [queries, k]; of equal scores, the lower key comes first.

        keys: [queries, n], the key to return for each row.
        """
        best = Near(keys[:, :k].copy(), self.scores[:, :k]).widened(k)
        first = self.scores[:, : k + 1]
        for query in np.flatnonzero((first[:, 1:] == first[:, :-1]).any(axis=1)).tolist():  # only ties
            order = np.lexsort((keys[query], -self.scores[query]))[:k]
            best.rows[query, : len(order)] = keys[query, order]
        return best.scores, best.rows

    def widened(self, width: int) -> "Near":
        """The same with so many columns, or as many as there are."""
        missing = width - self.rows.shape[1]
        if missing <= 0:
            return self
        more = ((0, 0), (0, missing))
        return Near(np.pad(self.rows, more, constant_values=-1), np.pad(self.scores, more, constant_values=-np.inf))


def joined(parts: Sequence[Near]) -> Near:
    """The answers for some queries after those for others, all as wide as the widest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.rows.shape[1] for part in parts)
    rows, scores = zip(*(part.widened(width) for part in parts), strict=True)
    return Near(np.concatenate(rows), np.concatenate(scores))
