"""The later stages of a cascade over a whole test set: late interaction, and matching.

Both directions meet in the same pairs: an image that is among a caption's best often has that caption among its own.
So the pairs of both directions are put together, each is scored once, and the scores are dealt out again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.bundle import Model
from sightline.bundle.ragged import Ragged
from sightline.errors import EvaluationError
from sightline.evaluation.cascade import Shortlist
from sightline.evaluation.encodings import Encodings, Progress
from sightline.evaluation.metrics import Floats
from sightline.retrieval.scoring import maxsim_texts

Longs = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
PairScorer = Callable[[Longs, Longs], Singles]
"""Scores [pairs] of text i with image i, from their indices [pairs]."""

_TEXTS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True)
class Direction:
    """The queries of one direction, indices [queries] into the texts or images, and their lists of the other kind."""

    queries: Longs
    shortlist: Shortlist

    def reranked(self, scores: Floats) -> "Direction":
        """Put the first k of every list in the order of new scores [queries, k]."""
        return Direction(self.queries, self.shortlist.reranked(scores))

    def pairs(self, k: int) -> tuple[Longs, Longs]:
        """Name query and candidate of each of the first k of every list: [queries * k] twice."""
        items = self.shortlist.items[:, :k]
        return np.repeat(self.queries, items.shape[1]), items.ravel()


def score_both(by_text: Direction, by_image: Direction, k: int, scorer: PairScorer) -> tuple[Singles, Singles]:
    """Score the first k of every list of both directions: [text queries, k] and [image queries, k]."""
    texts, images = by_text.pairs(k)
    more_images, more_texts = by_image.pairs(k)
    all_texts, all_images = np.concatenate([texts, more_texts]), np.concatenate([images, more_images])
    width = int(all_images.max(initial=0)) + 1
    keys, place = np.unique(all_texts * width + all_images, return_inverse=True)
    dealt = scorer(keys // width, keys % width)[place]
    return (
        dealt[: len(texts)].reshape(len(by_text.queries), -1),
        dealt[len(texts) :].reshape(len(by_image.queries), -1),
    )


def late_scorer(texts: Encodings, images: Encodings, progress: Progress | None = None) -> PairScorer:
    """Score pairs by late interaction (paper 3, equation 5), image by image: each image's fragments are read once."""
    words, patches = _kept(texts.fragments), _kept(images.fragments)
    _refuse_empty(words, texts)
    _refuse_empty(patches, images)

    def score(text: Longs, image: Longs) -> Singles:
        order = np.argsort(image, kind="stable")
        scores = np.empty(len(order), dtype=np.float32)
        done = 0
        for group in np.split(order, np.flatnonzero(np.diff(image[order])) + 1) if len(order) else []:
            of_image, _ = patches.joined(image[group[:1]])
            for start in range(0, len(group), _TEXTS_AT_ONCE):
                some = group[start : start + _TEXTS_AT_ONCE]
                scores[some] = maxsim_texts(*words.joined(text[some]), of_image)
            done += len(group)
            if progress:
                progress("late", done, len(order))
        return _finite(scores, texts.names[text], images.names[image])

    return score


def match_scorer(
    model: Model, texts: Encodings, images: Encodings, batch_size: int, progress: Progress | None = None
) -> PairScorer:
    """Score pairs by the model's matcher, as logits, texts of similar length together so that padding is little."""
    words, patches = _kept(texts.states), _kept(images.states)
    match = model.pair_matcher(words, patches)

    def score(text: Longs, image: Longs) -> Singles:
        order = np.lexsort((text, words.lengths[text]))
        scores = np.empty(len(order), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            some = order[start : start + batch_size]
            scores[some] = match(text[some], image[some])
            if progress:
                progress("match", start + len(some), len(order))
        return _finite(scores, texts.names[text], images.names[image])

    return score


def _kept(rows: Ragged | None) -> Ragged:
    if rows is None:
        raise EvaluationError("the items were encoded without what this stage needs")
    return rows


def _refuse_empty(rows: Ragged, items: Encodings) -> None:
    empty = np.flatnonzero(rows.lengths == 0)
    if len(empty):
        raise EvaluationError(
            f"{items.names[empty[0]]} has no fragments, and late interaction needs at least one",
            f"{len(empty)} of {len(items)} items are like this: leave out the late stage, or them.",
        )


def _finite(scores: Singles, texts: npt.NDArray[np.object_], images: npt.NDArray[np.object_]) -> Singles:
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        first = broken[0]
        raise EvaluationError(
            f"the score of {texts[first]} with {images[first]} is {scores[first]}",
            f"{len(broken)} of {len(scores)} pairs are like this; check the model's weights and precision.",
        )
    return scores
