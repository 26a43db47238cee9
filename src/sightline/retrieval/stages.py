"""A stage of the cascade: candidates in, the same candidates in a better order out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sightline.arrays import FloatArray, Int64Array
from sightline.bundle.model import FusionRule
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.fusion import fuse

StageName = Literal["late", "match"]
Score = Callable[[Int64Array], FloatArray]
"""Scores candidates, given their ids [..., k]: [..., k], higher is better."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Rescores the first k candidates and puts them in the order of the new scores; the rest stays behind them.

    fusion: the rule and weight by which the cosine is combined with these scores, if it is.
    cosine_value: how many points of the scores weigh as much as one of cosine.

    >>> import numpy as np
    >>> found = Candidates.of(np.array([7, 8, 9]), np.array([0.9, 0.8, 0.1]))
    >>> Stage("late", 2, lambda ids: np.where(ids == 8, 2.0, 1.0)).run(found).ids.tolist()
    [8, 7, 9]
    """

    name: StageName
    k: int
    score: Score
    fusion: tuple[FusionRule, float] | None = None
    cosine_value: float = 0.0

    def run(self, candidates: Candidates) -> Candidates:
        """Reorder candidates."""
        k = min(self.k, len(candidates))
        if not k:
            return candidates
        scores = self.score(candidates.ids[..., :k])
        if self.fusion is not None:
            rule, weight = self.fusion
            scores = fuse(rule, candidates.embed[..., :k], scores, weight)
        return candidates.reranked(scores, self.name, self.cosine_value)
