"""The stages of a search: what a stage does, which stages run, and what the model's defaults are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sightline.arrays import FloatArray, Int64Array
from sightline.bundle.model import DEFAULT_WEIGHT, Calibration, Model, check_ability
from sightline.bundle.relevance_formula import PairRelevance
from sightline.errors import OptionError
from sightline.fusion_names import FusionRule
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.fusion import check_fusion, fuse
from sightline.retrieval.options import SearchOptions

StageName = Literal["late", "match"]
Score = Callable[[Int64Array], FloatArray]
"""Returns the scores [..., k] of candidates, given their ids [..., k]; higher is better."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Rescores the first k candidates and sorts them by the new scores; the rest stay behind them.

    fusion: the rule and weight that combine the cosine with these scores, if any.
    cosine_value: how many points of these scores correspond to a cosine of 1.0.

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


MOST_RERANK = 100
"""Maximum number of candidates to match if only the time is limited."""

_MOST_FRAGMENTS = 1_000_000  # no item has so many; stores cannot count to any number


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of results, the stages, their fusion and the time limit; see `SearchOptions`.

    relevance: the model's estimate of the probability that an image shows what a text asks for, if it has one.
    calibration: in older bundles, the mapping from the scores of these stages to probabilities.
    """

    k: int = 10
    late: int | Literal["all"] = 0
    rerank: int = 0
    fusion: FusionRule = "ce"
    weight: float = DEFAULT_WEIGHT
    late_fragments: int | None = None
    budget_ms: float | None = None
    relevance: PairRelevance | None = None
    calibration: Mapping[str, Calibration] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages in results: embed, late@200, match@20."""
        later = (("late", self.late), ("match", self.rerank))
        return ("embed", *(f"{name}@{k}" for name, k in later if k))

    @property
    def longest(self) -> int:
        """The largest number of candidates that any later stage rescores; 0 if there is no later stage."""
        return max(self.late if self.late != "all" else 0, self.rerank)

    def stages(self, scores: Mapping[str, Score], cosine_values: Mapping[str, float] | None = None) -> Iterator[Stage]:
        """Yield the stages after the first, given the scoring function of each; see `Stage`."""
        values = cosine_values or {}
        if self.late and self.late != "all":
            yield Stage("late", self.late, scores["late"], cosine_value=values.get("late", 0.0))
        if self.rerank:
            fusion = (self.fusion, self.weight)
            yield Stage("match", self.rerank, scores["match"], fusion, cosine_value=values.get("match", 0.0))


def resolve(options: SearchOptions, model: Model, matcher: Model | None = None) -> Plan:
    """Fill in the model's defaults, and reject what the model cannot do.

    A search that sets neither `late` nor `rerank` runs the default stages that the model supports; one that sets only
    `rerank` runs no late interaction. matcher: the model to match with, if it is not `model`.
    """
    by_fragments = "embed" not in model.abilities and "fragments" in model.abilities
    if not by_fragments:
        check_ability(model, "embed", "ranking", "A matcher can only score pairs: use it to rerank for another model.")
    elif options.late == 0:
        check_ability(model, "embed", "ranking", "Use late interaction: set `late` to 'all' or the number of items.")
    if options.late:
        check_ability(model, "fragments", "`late`", "Leave it out, or choose another model.")
    if options.rerank:
        check_ability(matcher or model, "match", "`rerank`", "Leave it out, or choose another model.")
    defaults = (matcher or model).defaults
    late, rerank = options.late, options.rerank
    if late is None:
        late = defaults.late if rerank is None and "fragments" in model.abilities else 0
        late = "all" if by_fragments else late
    if rerank is None:
        rerank = defaults.rerank if options.budget_ms is None else MOST_RERANK
        rerank *= "match" in (matcher or model).abilities
    fusion = options.fusion or defaults.fusion
    weight = options.weight
    if weight is None:
        weight = defaults.weight if fusion == defaults.fusion else DEFAULT_WEIGHT
    check_fusion(fusion, weight)
    if matcher is not None and not rerank:
        raise OptionError("matcher", f"{matcher.name} has nothing to rerank", "Set `rerank`, or leave out `matcher`.")
    fitted = (fusion, weight) == (defaults.fusion, defaults.weight)  # the calibration is for the default fusion
    return Plan(
        k=options.k,
        late=late,
        rerank=rerank,
        fusion=fusion,
        weight=weight,
        late_fragments=None if options.late_fragments is None else min(options.late_fragments, _MOST_FRAGMENTS),
        budget_ms=options.budget_ms,
        relevance=model.relevance,
        calibration={name: found for name, found in model.calibration.items() if name != "match" or fitted},
    )
