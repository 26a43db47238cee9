"""From a question to ranked items: embeddings rank everything, fragments some of the best, the matcher the very best.

Later stages see nothing of an item but what is stored of it, so that no picture is opened. A stage's scores say nothing
about items that it has not judged: whoever a later stage has judged stands before whoever it has not.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from sightline.arrays import FloatArray
from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Calibration, Graph, Model
from sightline.errors import ModelError
from sightline.retrieval.costs import Costs, Stage
from sightline.retrieval.late import Late, rank_all
from sightline.retrieval.plan import Joined, Plan
from sightline.retrieval.plan import Watch as Watch
from sightline.retrieval.query import Asked, Kind, Query, encode, encode_together
from sightline.retrieval.relevance import relevances
from sightline.retrieval.retrieval import Candidates, Doubles, There, retrieve, retrieve_together
from sightline.retrieval.scoring import fuse
from sightline.stores.base import Ids, Singles, Store

_AT_ONCE = 128
_PROBE = 6  # items that a stage judges to be measured, where it never was before
_LOGITS_PER_COSINE = 20.0  # where no calibration says what a cosine is worth to the matcher
_Judge = Callable[[Ids], Singles]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates, best first, how relevant each is, if that is known, and the milliseconds of each part of the work."""

    candidates: Candidates
    relevances: Doubles | None
    took_ms: dict[str, float]
    truncated: bool = False

    @property
    def best_relevance(self) -> float | None:
        """How relevant the best candidate is, if there is one and that is known."""
        return None if self.relevances is None or not len(self.relevances) else float(self.relevances[0])


@dataclass(frozen=True, slots=True)
class Cascade:
    """The stages of a model over the items of a store. Several threads may share one."""

    model: Model
    store: Store
    kind: Kind
    costs: Costs
    clock: Callable[[], float] = time.perf_counter

    def run(
        self,
        query: Query,
        plan: Plan,
        *,
        allowed: Ids | None = None,
        there: There | None = None,
        fold: bool = False,
        watch: Watch | None = None,
    ) -> Ranking:
        """Answer a question; for `allowed`, `there` and `fold` see `retrieve`. watch: one that runs already."""
        plan.check(self.model)
        watch = watch or Watch(self.clock, plan.budget_ms)
        self._begin(query, plan)
        with watch("encode"):
            asked = encode(query, self.model, self.kind)
        late, rerank = self._limits(asked, plan)
        judge = None if asked.across is None else Late(self.store, asked.across, self.kind, plan.late_fragments)
        n = max(plan.k, late, rerank)
        if judge is not None and plan.late == "all" and self._can_interact:
            with watch("interact"):
                candidates = rank_all(judge, asked, n, allowed=allowed, there=there, fold=fold)
                self._refuse_infinite(candidates.scores)
        else:
            with watch("retrieve"):
                candidates = retrieve(self.store, asked, n, allowed=allowed, there=there, fold=fold)
        if judge is not None and late:
            with watch("interact"):
                candidates = self._late(candidates, judge, late, watch, 0.5 if rerank else 1.0)
        if asked.across is not None and rerank:
            with watch("match"):
                candidates = self._match(candidates, asked.across, rerank, watch, plan.joined(self.model))
        items = self.store.stats().items if allowed is None else len(allowed)
        return Ranking(candidates, self._relevances(asked, candidates, plan, items), watch.took_ms, asked.truncated)

    def run_together(
        self, queries: Sequence[Query], k: int, *, there: There | None = None, fold: bool = False
    ) -> list[Ranking]:
        """Answer many questions of nothing but words by the first stage alone, each as `run` would, in less time.

        Each took as long as all of them together.
        """
        plan, watch = Plan(k, rerank=0), Watch(self.clock)
        plan.check(self.model)
        with watch("encode"):
            asked = encode_together(queries, self.model, self.kind)
        with watch("retrieve"):
            found = retrieve_together(self.store, asked, k, there=there, fold=fold)
        items = self.store.stats().items
        return [
            Ranking(candidates, self._relevances(one, candidates, plan, items), dict(watch.took_ms), one.truncated)
            for one, candidates in zip(asked, found, strict=True)
        ]

    def _begin(self, query: Query, plan: Plan) -> None:
        """Have the model load at once everything that the question will need."""
        across = query.text if self.kind == "images" else query.image
        matches = across is not None and plan.stages(self.model)[1] and "match" in self.model.abilities
        wanted = {"text": query.text or query.without, "image": query.image, "match": matches}
        self.model.prepare(*(cast("Graph", graph) for graph, needed in wanted.items() if needed))

    def _limits(self, asked: Asked, plan: Plan) -> tuple[int, int]:
        """How many of the best late interaction and matching may get; none where the question is of the items' kind."""
        if asked.across is None:
            return 0, 0
        late, rerank = plan.stages(self.model)
        can_match = "match" in self.model.abilities and self.store.shape.states > 0
        return late if late != "all" and self._can_interact else 0, rerank * can_match

    @property
    def _can_interact(self) -> bool:
        return "fragments" in self.model.abilities and self.store.shape.fragments > 0

    def _late(self, candidates: Candidates, judge: Late, limit: int, watch: Watch, share: float) -> Candidates:
        k = self._affordable("late", judge.scores, candidates, limit, watch, share)
        if not k:
            return candidates
        scores = self._measured("late", judge.scores, candidates.ids[:k]).astype(np.float64)
        return candidates.reranked(scores, judge.worth, "late")

    def _match(self, candidates: Candidates, across: Encoded, limit: int, watch: Watch, joined: Joined) -> Candidates:
        self.model.prepare("match", wait=True)
        judge = partial(self._logits, across)
        k = self._affordable("match", judge, candidates, limit, watch, 1.0)
        if not k:
            return candidates
        logits = self._measured("match", judge, candidates.ids[:k])
        scores = fuse(joined.rule, candidates.embed[:k], logits, joined.weight)
        worth = _worth_of_a_cosine(self._calibrations(joined), joined)
        return candidates.reranked(scores, worth, "match")

    def _affordable(
        self, stage: Stage, judge: _Judge, candidates: Candidates, limit: int, watch: Watch, share: float
    ) -> int:
        """How many candidates a stage can judge in its share of the time that is left."""
        limit = min(limit, len(candidates))
        if watch.budget_ms is None or not limit:
            return limit
        if self.costs.of(stage) is None:
            self._probe(stage, judge, candidates, watch)
        return min(limit, self.costs.affordable(stage, share * watch.left()) or 0)

    def _probe(self, stage: Stage, judge: _Judge, candidates: Candidates, watch: Watch) -> None:
        """Learn what a stage costs that was never measured: try one item, and then some more if there is time."""
        self._measured(stage, judge, candidates.ids[:1])
        if (self.costs.affordable(stage, watch.left()) or 0) >= 2 * _PROBE:
            self._measured(stage, judge, candidates.ids[:_PROBE])

    def _measured(self, stage: Stage, judge: _Judge, ids: Ids) -> Singles:
        """Judge items, and learn how long that takes."""
        began = self.clock()
        scores = judge(ids)
        self.costs.note(stage, len(ids), self.clock() - began)
        self._refuse_infinite(scores)
        return scores

    def _refuse_infinite(self, scores: FloatArray) -> None:
        if not np.isfinite(scores).all():
            raise ModelError(f"{self.model.name} gave scores that are not finite", "Check its weights and precision.")

    def _logits(self, across: Encoded, ids: Ids) -> Singles:
        stored = self.store.fetch(ids, "states")
        if across.states is None:
            raise ModelError(f"{self.model.name} gave no states to match", "Leave out rerank.")
        logits = []
        for start in range(0, len(ids), _AT_ONCE):
            values, mask = stored.values[start : start + _AT_ONCE], stored.mask[start : start + _AT_ONCE]
            own = np.repeat(across.states, len(values), axis=0), np.repeat(across.mask, len(values), axis=0)
            pair = (*own, values, mask) if self.kind == "images" else (values, mask, *own)
            logits.append(self.model.match(*pair))
        return np.concatenate(logits)

    def _calibrations(self, joined: Joined) -> dict[str, Calibration]:
        """What turns scores into probabilities; that of the matcher holds only for scores joined as it was fitted."""
        own = joined == (self.model.defaults.fusion, self.model.defaults.weight)
        return {stage: found for stage, found in self.model.relevance.items() if stage != "match" or own}

    def _relevances(self, asked: Asked, candidates: Candidates, plan: Plan, items: int) -> Doubles | None:
        """How relevant candidates are; nobody has measured what the likeness of two of a kind says about that."""
        if asked.across is None:
            return None
        calibrations = self._calibrations(plan.joined(self.model))
        embed = candidates.embed - candidates.penalty
        return relevances(candidates.stages, candidates.fit, embed, calibrations, items)


def _worth_of_a_cosine(calibrations: dict[str, Calibration], joined: Joined) -> float:
    """How many points of the last stage weigh as much as one of cosine."""
    embed, match = calibrations.get("embed"), calibrations.get("match")
    if embed and match and embed.scale > 0 and match.scale > 0:
        return embed.scale / match.scale
    if joined.rule == "logit_add":
        return _LOGITS_PER_COSINE + joined.weight
    return _LOGITS_PER_COSINE if joined.rule == "ce" else 1.0
