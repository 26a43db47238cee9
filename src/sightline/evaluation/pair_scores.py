"""Late-interaction and match scores of pairs in a test set, by index, for the later stages of an evaluation."""

from dataclasses import dataclass, field

import numpy as np

from sightline.arrays import Float32Array, Int64Array
from sightline.bundle.model import Model, PairMatcher
from sightline.bundle.ragged import Ragged
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import Encodings, Progress
from sightline.retrieval.maxsim import patches_with_texts
from sightline.retrieval.stages import Score
from sightline.stores.base import QuantizedRows

_TEXTS_AT_ONCE = 2048


@dataclass(slots=True)
class PairScores:
    """Scores pairs of a text and an image, with a cache: a pair needed in both directions is scored once.

    score: computes scores [pairs] from the indices of the texts [pairs] and of the images [pairs].
    """

    score: PairMatcher
    _keys: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _values: Float32Array = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def __call__(self, texts: Int64Array, images: Int64Array) -> Float32Array:
        """Return the score of each pair, text i with image i: [pairs]."""
        keys = (texts << 32) + images
        wanted = np.unique(keys)
        new = wanted[~np.isin(wanted, self._keys, assume_unique=True)]
        if len(new):
            known = np.concatenate([self._keys, new])
            order = np.argsort(known)
            values = np.concatenate([self._values, self.score(new >> 32, new & 0xFFFFFFFF)])
            self._keys, self._values = known[order], values[order]
        return self._values[np.searchsorted(self._keys, keys)]

    def of_texts(self, texts: Int64Array) -> Score:
        """Return a function that scores candidate images [texts, k], k for each of these texts."""
        return lambda images: self(np.repeat(texts, images.shape[1]), images.ravel()).reshape(images.shape)

    def of_images(self, images: Int64Array) -> Score:
        """Return a function that scores candidate texts [images, k], k for each of these images."""
        return lambda texts: self(texts.ravel(), np.repeat(images, texts.shape[1])).reshape(texts.shape)


def late_scores(model: Model, texts: Encodings, images: Encodings, progress: Progress | None = None) -> PairScores:
    """Score pairs by late interaction: on the model's GPU or, image by image, on the CPU."""
    words, patches = _kept(texts.fragments), _kept(images.fragments)
    _refuse_empty(words, texts)
    _refuse_empty(patches, images)
    on_gpu = model.late_scorer(words, patches)
    if on_gpu is not None:
        return PairScores(_checked(on_gpu, texts, images))

    def score(text: Int64Array, image: Int64Array) -> Float32Array:
        order = np.argsort(image, kind="stable")
        scores = np.empty(len(order), dtype=np.float32)
        done = 0
        for group in np.split(order, np.flatnonzero(np.diff(image[order])) + 1) if len(order) else []:
            of_image, _ = patches.joined(image[group[:1]])
            for start in range(0, len(group), _TEXTS_AT_ONCE):
                some = group[start : start + _TEXTS_AT_ONCE]
                rows, lengths = words.joined(text[some])
                of_texts = QuantizedRows(rows, np.ones(len(rows), dtype=np.float32), lengths)
                scores[some] = patches_with_texts(of_image, of_texts)
            done += len(group)
            if progress:
                progress("late", done, len(order))
        return scores

    return PairScores(_checked(score, texts, images))


def match_scores(
    model: Model, texts: Encodings, images: Encodings, batch_size: int, progress: Progress | None = None
) -> PairScores:
    """Score pairs by the model's matcher, as logits; texts of similar length share a batch to keep padding low."""
    words, patches = _kept(texts.states), _kept(images.states)
    match = model.pair_matcher(words, patches)

    def score(text: Int64Array, image: Int64Array) -> Float32Array:
        order = np.lexsort((text, words.lengths[text]))
        scores = np.empty(len(order), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            some = order[start : start + batch_size]
            scores[some] = match(text[some], image[some])
            if progress:
                progress("match", start + len(some), len(order))
        return scores

    return PairScores(_checked(score, texts, images))


def _kept(rows: Ragged | None) -> Ragged:
    if rows is None:
        raise EvaluationError("the items were encoded without the data that this stage needs")
    return rows


def _refuse_empty(rows: Ragged, items: Encodings) -> None:
    empty = np.flatnonzero(rows.lengths == 0)
    if len(empty):
        raise EvaluationError(
            f"{items.names[empty[0]]} has no fragments, but late interaction needs at least one",
            f"{len(empty)} of {len(items)} items are affected: leave out `late`, or these items.",
        )


def _checked(score: PairMatcher, texts: Encodings, images: Encodings) -> PairMatcher:
    """Reject scores that are not finite; the error names the pair."""

    def checked(text: Int64Array, image: Int64Array) -> Float32Array:
        scores = score(text, image)
        broken = np.flatnonzero(~np.isfinite(scores))
        if len(broken):
            first = broken[0]
            raise EvaluationError(
                f"the score of {texts.names[text[first]]} with {images.names[image[first]]} is {scores[first]}",
                f"{len(broken)} of {len(scores)} pairs are affected; check the model's weights and precision.",
            )
        return scores

    return checked
