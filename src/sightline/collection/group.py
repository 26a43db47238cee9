"""Search several collections that were indexed with the same model."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from sightline.bundle.model import Model
from sightline.collection.catalog.files import Item
from sightline.collection.collection import Collection
from sightline.errors import CollectionError
from sightline.media import image_source
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import EncodeOnce
from sightline.retrieval.results import Hit, SearchResult
from sightline.retrieval.stages import resolve

_LEAST_MS = 0.001  # a time limit must be more than 0
_STAGES = ("text", "match", "late", "embed")  # hits of each stage come before those of the next


class GroupHit(NamedTuple):
    """A hit, and the position of its collection in the group."""

    member: int
    hit: Hit


class GroupResult(NamedTuple):
    """The hits of all collections, best first; `about` is the rest of the result, without hits."""

    hits: tuple[GroupHit, ...]
    about: SearchResult

    def flat(self) -> SearchResult:
        """Return the result as one list of hits, without the positions of their collections."""
        return replace(self.about, hits=tuple(one.hit for one in self.hits))


def check_group(collections: Sequence[Collection]) -> None:
    """Raise an error unless all collections have the same kind of items and the same model."""
    first, *others = collections
    for other in others:
        if other.kind != first.kind:
            raise CollectionError(
                f"{other.at}: contains {other.kind}, but {first.at} contains {first.kind}", "Search them one at a time."
            )
        if other.manifest.sha256 != first.manifest.sha256:
            raise CollectionError(
                f"{other.at}: was indexed with {other.manifest.model}, but {first.at} with {first.manifest.model}",
                "Search them one at a time, or index them with the same model.",
            )


def search_group(
    collections: Sequence[Collection],
    options: SearchOptions,
    model: Model | None = None,
    *,
    filters: Sequence[str | None] | None = None,
) -> GroupResult:
    """Search several collections as if they were one.

    filters: one for each collection, instead of `options.where`, because each has ids of its own.

    The first stage searches all of them; then only the best items overall are reranked, so this takes little longer
    than searching one collection. A time limit is for all of them: what the first stage leaves of it is divided like
    the items to rerank.
    """
    began = time.perf_counter()
    filters = filters or [options.where] * len(collections)
    if len(collections) == 1:
        found = collections[0].run(replace(options, where=filters[0]), model)
        return GroupResult(tuple(GroupHit(0, hit) for hit in found.hits), replace(found, hits=()))
    model, once = model or collections[0].model, EncodeOnce()
    image = None if options.image is None else image_source(options.image)
    deep = replace(options, k=options.start + options.k, start=0, image=image)
    plan = resolve(options, model)
    members = list(zip(collections, filters, strict=True))
    if (not plan.rerank and not plan.late) or plan.late == "all":
        return merge([one.run(replace(deep, where=where), model, once) for one, where in members], options)
    least = deep.min_relevance if plan.relevance is not None else None  # the older kind depends on the stage
    quick = replace(deep, k=max(deep.k, plan.longest), late=0, rerank=0, budget_ms=None, min_relevance=least)
    first = merge([one.run(replace(quick, where=where), model, once) for one, where in members], quick)
    ranked = [one for one in first.hits if one.hit.stage != "text"]
    shares = [
        tuple(_share(ranked, member, count) for count in (int(plan.late), plan.rerank))
        for member in range(len(members))
    ]
    results = []
    for member, ((one, where), (late, rerank)) in enumerate(zip(members, shares, strict=True)):
        own = replace(deep, where=where, late=late, rerank=rerank)
        if plan.budget_ms is not None:
            left = plan.budget_ms - 1000 * (time.perf_counter() - began)
            costly, every = (rerank, [one for _, one in shares]) if plan.rerank else (late, [one for one, _ in shares])
            part = costly / max(1, sum(every[member:]))
            own = replace(own, budget_ms=max(_LEAST_MS, left * part))
        results.append(one.run(own, model, once))
    return merge(results, options)


def browse_group(collections: Sequence[Collection], where: str | None, *, k: int = 10, start: int = 0) -> list[Item]:
    """List items of several collections as if they were one: by time, newest first; see `Collection.browse`."""
    timelines = [one.timeline(where) for one in collections]
    ids = np.concatenate([one.ids for one in timelines])
    members = np.repeat(np.arange(len(timelines)), [len(one) for one in timelines])
    order = np.argsort(-np.concatenate([one.times for one in timelines]), kind="stable")[start : start + k]
    found = [one.items(ids[order[members[order] == member]].tolist(), where) for member, one in enumerate(collections)]
    chosen = zip(members[order].tolist(), ids[order].tolist(), strict=True)
    return [found[member][id] for member, id in chosen if id in found[member]]


def merge(results: Sequence[SearchResult], options: SearchOptions) -> GroupResult:
    """Merge the results of the same search in several collections; the hits of each keep their order."""
    if len(results) == 1 and not options.start:
        found = results[0]
        return GroupResult(tuple(GroupHit(0, hit) for hit in found.hits[: options.k]), replace(found, hits=()))
    hits = tuple(_merged([result.hits for result in results]))[options.start : options.start + options.k]
    ranked = tuple(
        GroupHit(one.member, replace(one.hit, rank=place)) for place, one in enumerate(hits, options.start + 1)
    )
    best = [result.best_relevance for result in results if result.best_relevance is not None]
    stages = {stage for result in results for stage in result.took_ms}
    is_found = any(one.hit.stage == "text" for one in hits)
    about = replace(
        results[0],
        hits=(),
        took_ms={stage: sum(result.took_ms.get(stage, 0.0) for result in results) for stage in sorted(stages)},
        best_relevance=max(best, default=None),
        notice=None if is_found or any(not one.notice for one in results) else results[0].notice,
        did_you_mean=None if is_found else results[0].did_you_mean,
    )
    return GroupResult(ranked, about)


def _share(ranked: Sequence[GroupHit], member: int, count: int) -> int:
    """Count the hits from this collection among the first `count`."""
    return sum(one.member == member for one in ranked[:count])


def _merged(lists: Sequence[Sequence[Hit]]) -> Iterator[GroupHit]:
    """Merge the lists by repeatedly taking the best of their next hits."""
    waiting = [(_key(hits[0]), member, 0) for member, hits in enumerate(lists) if hits]
    heapify(waiting)
    while waiting:
        _, member, place = heappop(waiting)
        yield GroupHit(member, lists[member][place])
        if place + 1 < len(lists[member]):
            heappush(waiting, (_key(lists[member][place + 1]), member, place + 1))


def _key(hit: Hit) -> tuple[int, float]:
    return _STAGES.index(hit.stage), -hit.score
