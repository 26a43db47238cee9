"""The candidates for a query, best first: the input and output of every stage."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from sightline.errors import EvaluationError


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best items for one query [n] or for many [queries, n], best first.

    Scores of different stages are not comparable: items scored by a later stage come before all others.

    scores: from the last stage that scored each item. stages: [n], the name of that stage, by rank.
    fit: the scores without the contribution of `beside`, which later stages cannot read.
    embed: the cosine with the part of the query that later stages read.
    beside: what the other part of a query with both text and image adds to that cosine.
    penalty: how much unwanted content an item shows, in units of cosine; 0 or more.
    folded: for the id of an item, the ids of items that show the same image. blank: the ids of blank images.
    moments: for the id of a moment, the times in seconds of its video's best moments, best first.
    """

    ids: Int64Array
    scores: Float64Array
    fit: Float64Array
    stages: tuple[str, ...]
    embed: Float64Array
    beside: Float64Array
    penalty: Float64Array
    folded: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    blank: frozenset[int] = frozenset()
    moments: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    @staticmethod
    def of(ids: Int64Array, cosines: FloatArray, stage: str = "embed") -> "Candidates":
        """Return the candidates of the first stage, with its scores."""
        scores = cosines.astype(np.float64)
        none = np.broadcast_to(np.zeros(()), scores.shape)
        return Candidates(ids, scores, scores, (stage,) * ids.shape[-1], scores, none, none)

    def __len__(self) -> int:
        """Return the number of candidates per query."""
        return int(self.ids.shape[-1])

    def reranked(self, judged: FloatArray, stage: str, cosine_value: float = 0.0) -> "Candidates":
        """Sort the first k candidates by a stage's scores [..., k], highest first; the rest stay behind them.

        cosine_value: how many points of the stage's score correspond to a cosine of 1.0.
        """
        k = judged.shape[-1]
        if judged.shape != self.ids[..., :k].shape:
            raise EvaluationError(f"scores have shape {judged.shape}, but the lists have shape {self.ids.shape}")
        fit, scores = self.fit.copy(), self.scores.copy()
        fit[..., :k] = judged - cosine_value * self.penalty[..., :k]
        scores[..., :k] = fit[..., :k] + cosine_value * self.beside[..., :k]
        order = np.argsort(-scores[..., :k], axis=-1, kind="stable")
        stages = (stage,) * k + self.stages[k:]
        return replace(self, fit=fit, scores=scores, stages=stages)._mapped(lambda values: _head(values, order))

    def taken(self, places: Int64Array) -> "Candidates":
        """Return the candidates at these positions, in that order."""
        kept = replace(self, stages=tuple(self.stages[place] for place in places))
        return kept._mapped(lambda values: values[..., places])

    def first(self, n: int) -> "Candidates":
        """Return the first n candidates, or all if there are fewer."""
        return self if n >= len(self) else self.taken(np.arange(n))

    def is_blank(self) -> BoolArray:
        """Return which candidates [n] of one query are blank images."""
        return np.array([id in self.blank for id in self.ids.tolist()], dtype=np.bool_)

    def _mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> "Candidates":
        arrays = (self.ids, self.scores, self.fit, self.embed, self.beside, self.penalty)
        ids, scores, fit, embed, beside, penalty = map(change, arrays)
        return replace(self, ids=ids, scores=scores, fit=fit, embed=embed, beside=beside, penalty=penalty)


def _head(values: npt.NDArray[Any], order: Int64Array) -> npt.NDArray[Any]:
    """Reorder the first positions of each list."""
    k = order.shape[-1]
    if values.ndim == 1:  # several times faster than the general case
        return np.concatenate([values[order], values[k:]])
    return np.concatenate([np.take_along_axis(values[..., :k], order, axis=-1), values[..., k:]], axis=-1)
