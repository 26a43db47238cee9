"""The first stage: of everything there is, the items whose embeddings are nearest to the question's."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sightline.retrieval.duplicates import ALIKE, IDENTICAL, Patches, leaders
from sightline.retrieval.query import Asked
from sightline.stores.base import Ids, Neighbors, Singles, Store

Doubles = npt.NDArray[np.float64]
There = Callable[[Sequence[int]], Container[int]]
"""Tells which of some ids are still there; an item may be deleted while it is searched for."""

_SAMPLED = 256  # items that tell what is typical of a collection

MOST = 4_000
"""Items that are looked at, at least, before there may be too few different ones."""

MORE = 4
"""Times as many are looked at where the first were not enough."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Items that may be what was asked for, best first.

    ids: [n]. scores: [n], by the stage that judged the item last. stages: [n], the name of that stage.
    fit: [n], by the same stage, of the part of the question alone that it can read; the rest of a question of words and
        picture is in `scores` only.
    embed: [n], the cosine with that part. beside: [n], what the rest of the question adds to that cosine.
    penalty: [n], 0 or more: how much, in cosines, an item shows of what is not wanted.
    folded: [n], the ids of items that show the same picture.
    """

    ids: Ids
    scores: Doubles
    fit: Doubles
    stages: tuple[str, ...]
    embed: Doubles
    beside: Doubles
    penalty: Doubles
    folded: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def reranked(self, judged: Doubles, worth: float, stage: str) -> "Candidates":
        """Put the first of them in the order of a stage's scores [up to n], highest first; the rest stay behind them.

        worth: how many points of the stage's scores weigh as much as one of cosine.
        """
        k = len(judged)
        fit, scores = self.fit.copy(), self.scores.copy()
        fit[:k] = judged - worth * self.penalty[:k]
        scores[:k] = fit[:k] + worth * self.beside[:k]
        order = np.concatenate([np.argsort(-scores[:k], kind="stable"), np.arange(k, len(self))])
        return replace(self, fit=fit, scores=scores, stages=(stage,) * k + self.stages[k:]).taken(order)

    def taken(self, places: Ids) -> "Candidates":
        """Those at some places, in that order."""
        return Candidates(
            self.ids[places],
            self.scores[places],
            self.fit[places],
            tuple(self.stages[place] for place in places),
            self.embed[places],
            self.beside[places],
            self.penalty[places],
            tuple(self.folded[place] for place in places),
        )


def retrieve(
    store: Store,
    asked: Asked,
    n: int,
    *,
    allowed: Ids | None = None,
    there: There | None = None,
    fold: bool = False,
    first: Neighbors | None = None,
) -> Candidates:
    """Find the n best items; with `fold`, the n best of which no two are the same picture.

    allowed: only these ids may be found. there: says which are still there. first: what the store finds for `asked`, as
    many as are looked at first, where that is known.

    What is not wanted takes from an item's cosine as much as it shows more of it than is typical of the collection.
    That never raises a score: so once the n-th best score reaches the lowest cosine that was looked at, no item
    further down can be better, and the answer is exact.
    """
    unwanted = Unwanted.of(asked, store, allowed)
    want = wanted(n, fold or unwanted is not None)
    while True:
        found, first = first or store.search(asked.vector[None], want, allowed), None
        ids, cosines = found.ids[0], found.scores[0].astype(np.float64)
        ids, cosines = ids[ids >= 0], cosines[ids >= 0]
        is_all = len(ids) < want
        lowest = -np.inf if is_all else cosines[-1]
        is_there = still_there(ids, there)
        ids, cosines = ids[is_there], cosines[is_there]
        candidates = _judged(store, asked, ids, cosines, unwanted, fold)
        sure = int(np.count_nonzero(candidates.scores >= lowest))
        if is_all or sure >= n or want >= MOST:
            return candidates.taken(np.arange(min(n, len(candidates))))
        want *= MORE


def retrieve_together(
    store: Store, asked: Sequence[Asked], n: int, *, there: There | None = None, fold: bool = False
) -> list[Candidates]:
    """Find for each of many questions what `retrieve` finds; all are held against an item while it is at hand.

    Nothing may be unwanted. there: is asked about the items of all questions at once.
    """
    found = store.search(np.stack([one.vector for one in asked]), wanted(n, fold))
    if there is not None:
        there(np.unique(found.ids[found.ids >= 0]).tolist())
    firsts = [Neighbors(found.ids[number, None], found.scores[number, None]) for number in range(len(asked))]
    return [
        retrieve(store, one, n, there=there, fold=fold, first=first) for one, first in zip(asked, firsts, strict=True)
    ]


def still_there(ids: Ids, there: There | None) -> npt.NDArray[np.bool_]:
    """Which of some ids [n] are still there; all of them where nobody can tell."""
    if there is None:
        return np.ones(len(ids), dtype=np.bool_)
    known = there(ids.tolist())
    return np.array([id in known for id in ids.tolist()], dtype=np.bool_)


def wanted(n: int, some_may_go: bool) -> int:
    """How many items are looked at first, to find n."""
    return 2 * n if some_may_go else n


def _judged(
    store: Store, asked: Asked, ids: Ids, cosines: Doubles, unwanted: "Unwanted | None", fold: bool
) -> Candidates:
    """Score items by their cosines [n] and what else is asked, put them in order, and fold those that look the same."""
    embed, beside, penalty = cosines, np.zeros(len(ids)), np.zeros(len(ids))
    embeddings = np.empty((len(ids), 0), dtype=np.float32)
    if fold or unwanted or asked.beside is not None:
        embeddings = store.fetch(ids, "embedding").values[:, 0]
    if asked.beside is not None and asked.across is not None:
        embed = (embeddings @ asked.across.embedding[0]).astype(np.float64)
        beside = (embeddings @ asked.beside).astype(np.float64)
    if unwanted:
        penalty = unwanted.shown_by(embeddings)
    scores = cosines - penalty
    none: tuple[int, ...] = ()
    candidates = Candidates(
        ids, scores, embed - penalty, ("embed",) * len(ids), embed, beside, penalty, (none,) * len(ids)
    )
    order = np.argsort(-scores, kind="stable")
    return folded(candidates.taken(order), embeddings[order], store) if fold else candidates.taken(order)


def folded(candidates: Candidates, embeddings: Singles, store: Store) -> Candidates:
    """Of pictures that look the same only the best, with the ids of the others."""
    if store.shape.states:
        leading = leaders(embeddings, ALIKE, Patches(store, candidates.ids).is_same)
    else:
        leading = leaders(embeddings, IDENTICAL)
    followers: list[list[int]] = [[] for _ in leading]
    for place in np.flatnonzero(leading != np.arange(len(leading))):
        followers[leading[place]].append(int(candidates.ids[place]))
    held = replace(candidates, folded=tuple(map(tuple, followers)))
    return held.taken(np.flatnonzero(leading == np.arange(len(leading))))


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What is not wanted, vectors [m, dim], and the cosine [m] with each that half of the collection exceeds."""

    vectors: Singles
    typical: Singles

    @staticmethod
    def of(asked: Asked, store: Store, allowed: Ids | None) -> "Unwanted | None":
        """What a question does not want, beside what is typical of the items that may be found; None for nothing."""
        if not len(asked.without):
            return None
        ids = np.intersect1d(allowed, store.ids()) if allowed is not None else store.ids()
        sample = ids[:: max(1, len(ids) // _SAMPLED)]
        if not len(sample):
            return None
        cosines = store.fetch(sample, "embedding").values[:, 0] @ asked.without.T
        return Unwanted(asked.without, np.median(cosines, axis=0))

    def shown_by(self, embeddings: Singles) -> Doubles:
        """How much more than typical items [n, dim] show of it, all of it together: [n]."""
        excess = np.maximum(0, embeddings @ self.vectors.T - self.typical)
        total: Doubles = excess.sum(axis=1, dtype=np.float64)
        return total
