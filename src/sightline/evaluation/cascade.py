"""Ranks after later stages have had their say: some candidates in a new order, everything else in the old one.

A stage rescores the first k of a query's list. Its scores say nothing about the rest, and need not even be of the
same range, so scores of different stages are never compared: whoever a later stage has judged stands before whoever
it has not, and among those judged last by the same stage the score decides.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.errors import EvaluationError
from sightline.evaluation.metrics import Floats, Ranks

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The best candidates of every query, best first.

    items: [queries, k], indices into the gallery.
    scores: [queries, k], by the stage that judged the candidate last.
    embed: [queries, k], by the first stage; what a fusion adds to the matcher's score.
    judged: [k], how many stages have judged the candidates of this column; never rises from left to right.
    """

    items: Longs
    scores: Floats
    embed: Floats
    judged: Longs

    @staticmethod
    def of(items: Longs, scores: Floats) -> "Shortlist":
        """Begin with what the first stage found: lists and scores [queries, k], best first."""
        return Shortlist(items, scores, scores, np.ones(items.shape[1], dtype=np.int64))

    def reranked(self, scores: Floats) -> "Shortlist":
        """Put the first k of every list in the order of new scores [queries, k], highest first, and keep the rest."""
        if scores.ndim != 2 or len(scores) != len(self.items) or scores.shape[1] > self.items.shape[1]:
            raise EvaluationError(f"scores of shape {scores.shape} for lists of shape {self.items.shape}")
        k = scores.shape[1]
        order = np.argsort(-scores, axis=1, kind="stable")
        items, embed, joined = self.items.copy(), self.embed.copy(), self.scores.astype(np.float64)
        items[:, :k] = np.take_along_axis(self.items[:, :k], order, axis=1)
        embed[:, :k] = np.take_along_axis(self.embed[:, :k], order, axis=1)
        joined[:, :k] = np.take_along_axis(scores, order, axis=1)
        judged = self.judged.copy()
        judged[:k] = self.judged.max(initial=0) + 1
        return Shortlist(items, joined, embed, judged)

    def ranks(self, right: npt.NDArray[np.bool_], otherwise: Ranks) -> Ranks:
        """Rank [queries] of the best right candidate; where a list has none, the rank of the first stage.

        right: [queries, k], which candidates are right; they do not stand in each other's way. otherwise: [queries],
        ranks over the whole gallery by the first stage. Ties with wrong candidates count against the model.
        """
        if not right.size:
            return otherwise
        column = right.argmax(axis=1)[:, None]
        score = np.take_along_axis(self.scores, column, axis=1)
        stage = self.judged[column]
        ahead = (self.judged > stage) | ((self.judged == stage) & (self.scores >= score))
        listed: Ranks = 1.0 + np.count_nonzero(ahead & ~right, axis=1).astype(np.float64)
        return np.where(right.any(axis=1), listed, otherwise)
