"""The search cascade: embeddings rank all items, then late interaction and the matcher rescore the best ones.

Later stages read only what the store holds for each item, so no image is opened.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.arrays import Float32Array, Float64Array, FloatArray, Int64Array
from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Graph, Model
from sightline.bundle.relevance_formula import PairRelevance
from sightline.errors import ModelError, OptionError
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.costs import Costs, Stopwatch, search_stopwatch
from sightline.retrieval.first_stage import EVERYTHING, Scope, retrieve, retrieve_together
from sightline.retrieval.late import LateScorer, rank_all
from sightline.retrieval.moments import with_moments
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import Encode, EncodedQuery, ItemKind, Query, encode, encode_together
from sightline.retrieval.relevance import LeastRelevance, gallery_relevances, pair_relevances
from sightline.retrieval.stages import Plan, Score, Stage, resolve
from sightline.stores.base import RefinableStore, Store

_AT_ONCE = 128
_PROBE = 6  # items to score when a stage's cost is measured for the first time
_LOGITS_PER_COSINE = 20.0  # default for a model without a calibration
_PART = {"late": "interact", "match": "match"}


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates, best first, the relevance of each, if known, and the time in milliseconds that each part took.

    line: the minimum relevance for a candidate to count as a match; None if relevance is unknown, or of the older kind.
    fast: the ids of the candidates that the model's fast image graph encoded.
    best_relevance: the highest relevance of any examined item, even one that is no candidate because it is too low.
    """

    candidates: Candidates
    relevances: Float64Array | None
    took_ms: dict[str, float]
    truncated: bool = False
    line: float | None = None
    fast: frozenset[int] = frozenset()
    best_relevance: float | None = None

    def at_least(self, least: float | None) -> "Ranking":
        """Return the candidates with at least this relevance; all if it is None."""
        if least is None:
            return self
        if self.relevances is None:
            raise OptionError(
                "min_relevance",
                "is unavailable: the relevance of these results is unknown",
                "Search images by text with a calibrated model, or leave it out.",
            )
        places = np.flatnonzero(self.relevances >= least)
        return replace(self, candidates=self.candidates.taken(places), relevances=self.relevances[places])


@dataclass(frozen=True, slots=True)
class Cascade:
    """The stages of a model over the items of a store. Thread-safe.

    fast_relevance: the relevance of items that the model's fast image graph encoded, if it was fitted; not used for
        texts in languages that it was not fitted for.
    encode: encodes single queries.
    """

    model: Model
    store: Store
    kind: ItemKind
    costs: Costs
    clock: Callable[[], float] = time.perf_counter
    fast_relevance: PairRelevance | None = None
    encode: Encode = encode

    def reading(self, model: Model) -> "Cascade":
        """Return this cascade with the model for another language; see `language.in_language`."""
        return replace(self, model=model, fast_relevance=self.fast_relevance if model.fast_relevance else None)

    def run(self, options: SearchOptions, scope: Scope = EVERYTHING, *, watch: Stopwatch | None = None) -> Ranking:
        """Search for a query. watch: a running stopwatch."""
        query, plan = options.query, resolve(options, self.model)
        watch = watch or search_stopwatch(plan.budget_ms, self.clock)
        self._prepare(query, plan)
        with watch("encode"):
            encoded = self.encode(query, self.model, self.kind)
        plan = self._possible(plan, encoded)
        across = encoded.across
        late = None if across is None else LateScorer(self.store, across, self.kind, plan.late_fragments)
        n = max(plan.k, plan.longest)
        least = self._least(options.min_relevance, encoded, plan, scope)
        if late is not None and plan.late == "all":
            with watch("interact"):
                candidates = rank_all(late, encoded, n, scope, least)
                self._check_finite(candidates.scores)
        else:
            with watch("retrieve"):
                candidates = retrieve(self.store, encoded, n, scope, least=least)
        for stage in self._stages(plan, across, late):
            with watch(_PART[stage.name]):
                share = 0.5 if stage.name == "late" and plan.rerank else 1.0
                candidates = self._run(stage, candidates, watch, share)
        with watch("retrieve"):
            candidates = with_moments(candidates, plan.k, encoded, self.store, scope.moments)
        return self._ranking(encoded, candidates, plan, scope, watch, least)

    def _least(self, least: float | None, query: EncodedQuery, plan: Plan, scope: Scope) -> LeastRelevance | None:
        """Return the least relevance of results; None if it was not asked for, or is relative to other results."""
        if least is None or plan.relevance is None or not self._has_relevance(query):
            return None
        fitted = plan.relevance
        fits = [fitted, *([self.fast_relevance] if self.fast_relevance is not None else [])]

        def of(ids: Int64Array, cosines: Float64Array) -> Float64Array:
            found = self._pair_relevances(query, ids, cosines, fitted)
            if scope.blank is not None:
                found[np.isin(ids, list(scope.blank(ids.tolist())))] = 0.0
            return found

        def highest(cosine: float) -> float:
            ends = np.array([-1.0, max(-1.0, cosine)])  # relevance rises or falls with the cosine
            return max(float(one.of(query.text, ends, self.model.words).max()) for one in fits)

        return LeastRelevance(least, of, highest)

    def run_together(
        self, texts: Sequence[str], k: int, scope: Scope = EVERYTHING, min_relevance: float | None = None
    ) -> list[Ranking]:
        """Search for many texts with the first stage alone: the same results as from `run`, but faster.

        The time reported for each text is the time of the whole batch.
        """
        plan = resolve(SearchOptions(k=k, late=0, rerank=0), self.model)
        watch = search_stopwatch(clock=self.clock)
        with watch("encode"):
            queries = encode_together(texts, self.model, self.kind)
        leasts = [self._least(min_relevance, query, plan, scope) for query in queries]
        with watch("retrieve"):
            pairs = zip(queries, retrieve_together(self.store, queries, k, scope, leasts), strict=True)
            found = [with_moments(own, k, query, self.store, scope.moments) for query, own in pairs]
        return [
            self._ranking(query, own, plan, scope, watch, least)
            for query, own, least in zip(queries, found, leasts, strict=True)
        ]

    def _ranking(
        self,
        query: EncodedQuery,
        candidates: Candidates,
        plan: Plan,
        scope: Scope,
        watch: Stopwatch,
        least: LeastRelevance | None,
    ) -> Ranking:
        """Add the relevance of candidates; it is unknown for a query with an image, as none was fitted for those.

        The relevance of an item is that of the image graph that encoded it. A blank image shows nothing, so its
        relevance is 0.
        """
        found, line, fast = None, None, self._fast(candidates.ids)
        if plan.relevance is not None:
            if self._has_relevance(query):
                found = self._pair_relevances(query, candidates.ids, candidates.embed, plan.relevance)
                found[candidates.is_blank()] = 0.0
                line = plan.relevance.line
        elif query.across is not None:
            items = self.store.stats().items if scope.allowed is None else len(scope.allowed)
            found = gallery_relevances(candidates, plan.calibration, items)
        highest = None if found is None or not len(found) else float(found.max())
        best = highest if least is None else least.best
        return Ranking(candidates, found, watch.milliseconds, query.truncated, line, fast, best)

    def _has_relevance(self, query: EncodedQuery) -> bool:
        """Return whether the relevance of pairs was fitted for such queries: texts that look for images."""
        return self.kind == "images" and query.across is not None and query.beside is None

    def _pair_relevances(
        self, query: EncodedQuery, ids: Int64Array, cosines: Float64Array, fitted: PairRelevance
    ) -> Float64Array:
        """Return the relevance of items [n] that are not blank, by their cosines with a text [n]."""
        words, fast = self.model.words, self._fast(ids)
        found = pair_relevances(query, ids, cosines, fitted, words, self.store)
        if fast and self.fast_relevance is not None and self.model.fast_relevance is not None:
            own = np.flatnonzero(np.isin(ids, list(fast)))
            found[own] = pair_relevances(query, ids[own], cosines[own], self.fast_relevance, words, self.store)
        return found

    def _fast(self, ids: Int64Array) -> frozenset[int]:
        """Return the ids of the items that the model's fast image graph encoded."""
        return frozenset(self.store.fast_ids(ids).tolist() if isinstance(self.store, RefinableStore) else ())

    def _prepare(self, query: Query, plan: Plan) -> None:
        """Have the model start loading everything that the query will need."""
        across = query.text if self.kind == "images" else query.image
        needs: dict[Graph, object] = {
            "text": query.text or query.without,
            "image": query.image,
            "match": across is not None and plan.rerank,
        }
        self.model.prepare(*(graph for graph, needed in needs.items() if needed))

    def _possible(self, plan: Plan, query: EncodedQuery) -> Plan:
        """Return the plan without stages whose input is missing from the query or from the store."""
        if query.across is None:
            return replace(plan, late=0, rerank=0)
        shape = self.store.shape
        return replace(plan, late=plan.late if shape.fragments else 0, rerank=plan.rerank if shape.states else 0)

    def _stages(self, plan: Plan, across: Encoded | None, late: LateScorer | None) -> list[Stage]:
        if across is None or late is None:
            return []
        scores: dict[str, Score] = {"late": late.scores, "match": lambda ids: self._logits(across, ids)}
        values = {"late": late.cosine_value if plan.late else 0.0, "match": _cosine_value(plan)}
        return list(plan.stages(scores, values))

    def _run(self, stage: Stage, candidates: Candidates, watch: Stopwatch, share: float) -> Candidates:
        """Run a stage on as many candidates as it can score in its share of the remaining time."""
        if stage.name == "match":
            self.model.prepare("match", wait=True)
        k = min(stage.k, len(candidates))
        if watch.limit is not None and k:
            if self.costs.of(stage.name) is None:
                self._probe(stage, candidates, watch)
            k = min(k, self.costs.affordable(stage.name, share * watch.left()) or 0)
        return replace(stage, k=k, score=lambda ids: self._measured(stage, ids)).run(candidates)

    def _probe(self, stage: Stage, candidates: Candidates, watch: Stopwatch) -> None:
        """Measure a stage for the first time: score one item, and then some more if there is time."""
        self._measured(stage, candidates.ids[:1])
        if (self.costs.affordable(stage.name, watch.left()) or 0) >= 2 * _PROBE:
            self._measured(stage, candidates.ids[:_PROBE])

    def _measured(self, stage: Stage, ids: Int64Array) -> FloatArray:
        """Score items, and record how long it took."""
        began = self.clock()
        scores = stage.score(ids)
        self.costs.note(stage.name, len(ids), self.clock() - began)
        self._check_finite(scores)
        return scores

    def _check_finite(self, scores: FloatArray) -> None:
        if not np.isfinite(scores).all():
            raise ModelError(
                f"{self.model.name} returned scores that are not finite", "Check its weights and precision."
            )

    def _logits(self, across: Encoded, ids: Int64Array) -> Float32Array:
        stored = self.store.fetch(ids, "states")
        if across.states is None:
            raise ModelError(f"{self.model.name} returned no states to match", "Leave out `rerank`.")
        logits = []
        for start in range(0, len(ids), _AT_ONCE):
            values, mask = stored.values[start : start + _AT_ONCE], stored.mask[start : start + _AT_ONCE]
            own = np.repeat(across.states, len(values), axis=0), np.repeat(across.mask, len(values), axis=0)
            pair = (*own, values, mask) if self.kind == "images" else (values, mask, *own)
            logits.append(self.model.match(*pair))
        return np.concatenate(logits)


def _cosine_value(plan: Plan) -> float:
    """Return how many points of the matcher's score correspond to a cosine of 1.0."""
    embed, match = plan.calibration.get("embed"), plan.calibration.get("match")
    if embed and match and embed.scale > 0 and match.scale > 0:
        return embed.scale / match.scale
    if plan.fusion == "logit_add":
        return _LOGITS_PER_COSINE + plan.weight
    return _LOGITS_PER_COSINE if plan.fusion == "ce" else 1.0
