"""Results of a scan, including ties, so that the caller can decide how to order equal scores."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array

Ids = npt.NDArray[np.int64]


class Near(NamedTuple):
    """For each query, every row at least as near as its k-th best, and possibly more, best first: [queries, n].

    Padded with rows of -1 and scores of -inf.
    """

    rows: Ids
    scores: Float32Array

    def best(self, keys: Ids, k: int) -> tuple[Float32Array, Ids]:
        """Return the k highest scores and their keys, both [queries, k]; ties are ordered by key.

        keys: [queries, n], the key to return for each row.
        """
        best = Near(keys[:, :k].copy(), self.scores[:, :k]).widened(k)
        first = self.scores[:, : k + 1]
        for query in np.flatnonzero((first[:, 1:] == first[:, :-1]).any(axis=1)).tolist():  # only ties
            order = np.lexsort((keys[query], -self.scores[query]))[:k]
            best.rows[query, : len(order)] = keys[query, order]
        return best.scores, best.rows

    def widened(self, width: int) -> "Near":
        """Return the same results, padded to at least `width` columns."""
        missing = width - self.rows.shape[1]
        if missing <= 0:
            return self
        more = ((0, 0), (0, missing))
        return Near(np.pad(self.rows, more, constant_values=-1), np.pad(self.scores, more, constant_values=-np.inf))


def joined(parts: Sequence[Near]) -> Near:
    """Concatenate the results of several batches of queries, padded to the widest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.rows.shape[1] for part in parts)
    rows, scores = zip(*(part.widened(width) for part in parts), strict=True)
    return Near(np.concatenate(rows), np.concatenate(scores))
