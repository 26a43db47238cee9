"""Late interaction as a stage: the stored fragments of some items, or of every item, against those of a question."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sightline.bundle.encoded import Encoded
from sightline.errors import ModelError
from sightline.parallel import usable_cpus
from sightline.retrieval.interaction import patches_with_texts, words_with_images
from sightline.retrieval.query import Asked, Kind
from sightline.retrieval.retrieval import MORE, MOST, Candidates, Doubles, There, Unwanted, folded, still_there, wanted
from sightline.stores.base import Ids, Singles, Store

_AT_ONCE = 64  # items; their fragments as float32 stay in a processor's cache
_WORDS = 12  # of a text, about: late interaction adds up as many cosines


@dataclass(frozen=True, slots=True)
class Late:
    """Judges items of a store by late interaction with a question.

    across: the part of the question that is of another kind than the items. kind: what the items are.
    first: how many fragments of either side count, the first ones; None for all.
    """

    store: Store
    across: Encoded
    kind: Kind
    first: int | None = None

    @property
    def vectors(self) -> Singles:
        """The question's fragments [n, dim]."""
        if self.across.fragments is None:
            raise ModelError("the model gave no fragments", "Leave out late.")
        own: Singles = self.across.fragments[0][self.across.mask[0]][: self.first].astype(np.float32)
        return own

    @property
    def worth(self) -> int:
        """How many points of a score weigh as much as one of cosine: one for each word."""
        return len(self.vectors) if self.kind == "images" else _WORDS

    def scores(self, ids: Ids) -> Singles:
        """Judge some items [n], a few at a time: [n]."""
        return np.concatenate([np.empty(0, dtype=np.float32), *map(self._of_few, _few_at_a_time(ids))])

    def _of_few(self, ids: Ids) -> Singles:
        stored = self.store.rows(ids, "fragments", self.first)
        score = words_with_images if self.kind == "images" else patches_with_texts
        return score(self.vectors, stored)


class _Judged(NamedTuple):
    """Items [n]: how well each fits, what the rest of the question adds to that, and what it shows of the unwanted."""

    ids: Ids
    fit: Doubles
    beside: Doubles
    penalty: Doubles


def rank_all(
    late: Late, asked: Asked, n: int, *, allowed: Ids | None = None, there: There | None = None, fold: bool = False
) -> Candidates:
    """Find the n best of all items by late interaction, which no embedding has chosen; for the options see `retrieve`.

    Fragments are read a few items at a time, by as many threads as there are processors. However many these are, the
    answer is the same, and little more is held in memory than a score an item.
    """
    ids = late.store.ids() if allowed is None else np.intersect1d(allowed, late.store.ids())
    judged = _judge_all(late, ids, asked, Unwanted.of(asked, late.store, allowed))
    order = np.lexsort((judged.ids, -(judged.fit + late.worth * judged.beside)))
    want = wanted(n, fold)
    while True:
        candidates = _candidates(late, judged, order[:want], there, fold)
        if len(candidates) >= n or want >= min(len(order), MOST):
            return candidates.taken(np.arange(min(n, len(candidates))))
        want *= MORE


def _judge_all(late: Late, ids: Ids, asked: Asked, unwanted: Unwanted | None) -> _Judged:
    """Judge every item, by threads of its own: Ctrl-C, raised in the main thread, ends them after a few items each."""
    pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="sightline-late")
    try:
        parts = list(pool.map(lambda few: _judge(late, few, asked, unwanted), _few_at_a_time(ids)))
    finally:
        pool.shutdown(cancel_futures=True)
    return _Judged(ids, *np.concatenate([np.empty((3, 0)), *parts], axis=1))


def _judge(late: Late, ids: Ids, asked: Asked, unwanted: Unwanted | None) -> Doubles:
    """The fit of some items, what the rest of the question adds, and what of the unwanted they show: [3, n]."""
    fit = late.scores(ids).astype(np.float64)
    beside, penalty = np.zeros(len(ids)), np.zeros(len(ids))
    if asked.beside is not None or unwanted:
        embeddings = late.store.fetch(ids, "embedding").values[:, 0]
        if asked.beside is not None:
            beside = (embeddings @ asked.beside).astype(np.float64)
        if unwanted:
            penalty = unwanted.shown_by(embeddings)
    return np.stack([fit - late.worth * penalty, beside, penalty])


def _candidates(late: Late, judged: _Judged, places: Ids, there: There | None, fold: bool) -> Candidates:
    """The items at some places, best first, as candidates; those that are gone are left out."""
    places = places[still_there(judged.ids[places], there)]
    ids, fit, beside, penalty = judged.ids[places], judged.fit[places], judged.beside[places], judged.penalty[places]
    embeddings = late.store.fetch(ids, "embedding").values[:, 0]
    embed = (embeddings @ late.across.embedding[0]).astype(np.float64)
    scores, none = fit + late.worth * beside, ((),) * len(ids)
    found = Candidates(ids, scores, fit, ("late",) * len(ids), embed, beside, penalty, none)
    return folded(found, embeddings, late.store) if fold else found


def _few_at_a_time(ids: Ids) -> Iterator[Ids]:
    return (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
