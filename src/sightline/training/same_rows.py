"""Rows of a batch that are not negatives of each other although they belong to different images."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.training.data_tables import SourceRecipe

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SameRule:
    """Which rows are never negatives of each other: those with the same caption, or with the same label.

    label_positive: captions with the same label are positives too.
    """

    caption: bool = False
    label: bool = False
    label_positive: bool = False

    @classmethod
    def of(cls, source: SourceRecipe) -> "SameRule":
        """Return the rule of one source of a recipe."""
        same = source.same or ()
        return cls("caption" in same, "label" in same, source.positives == "label")


class SameRows:
    """Finds the pairs of a batch that share a caption or a label.

    captions: the captions of all images, image by image; first: [images + 1], the index of each image's first caption.
    labels: [images], None for an image without one.
    """

    def __init__(self, captions: Iterable[str], first: Int64Array, labels: Sequence[str | None]) -> None:
        self._first = first
        self._text = _numbered(_normalised(caption) for caption in captions)
        self._label = _numbered(labels)
        counts = np.diff(first)
        owner = np.repeat(np.arange(len(counts)), counts)
        distinct = np.unique(np.stack([self._text, owner], 1), axis=0)[:, 0]
        self._shared = np.bincount(distinct, minlength=1) > 1

    def pairs(self, rule: SameRule, images: Int64Array, text_images: Int64Array, captions: Int64Array) -> "SamePairs":
        """Find the pairs of a batch to which a rule applies.

        images: [I], sorted, the images of the batch; text_images: [T], the image of each text; captions: [T], the
        index of each text among all captions.
        """
        excluded, positive = _NONE, _NONE
        own = np.searchsorted(images, text_images) + np.arange(len(text_images)) * len(images)
        if rule.label or rule.label_positive:
            found = _join(self._label[text_images], self._label[images], np.arange(len(images)), len(images))
            found = np.setdiff1d(found, own)
            positive, excluded = (found, _NONE) if rule.label_positive else (_NONE, found)
        if rule.caption:
            counts = self._first[images + 1] - self._first[images]
            rows = np.repeat(np.arange(len(images)), counts)
            every = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            groups = self._text[np.repeat(self._first[images], counts) + every]
            shared = self._shared[groups]
            found = _join(self._text[captions], groups[shared], rows[shared], len(images))
            excluded = np.union1d(excluded, np.setdiff1d(found, np.union1d(own, positive)))
        return SamePairs(excluded, positive)


@dataclass(frozen=True, slots=True)
class SamePairs:
    """Pairs of a batch, each as text row * number of images + image row.

    excluded: neither positives nor negatives. positive: positives besides an image's own captions.
    """

    excluded: Int64Array
    positive: Int64Array


def _join(text_groups: Int64Array, image_groups: Int64Array, image_rows: Int64Array, images: int) -> Int64Array:
    """Pair every text with the images in its group; groups below 0 pair with nothing."""
    order = np.argsort(text_groups, kind="stable")
    ordered = text_groups[order]
    known = image_groups >= 0
    image_groups, image_rows = image_groups[known], image_rows[known]
    low, high = np.searchsorted(ordered, image_groups, "left"), np.searchsorted(ordered, image_groups, "right")
    counts = high - low
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    return np.unique(order[places] * images + np.repeat(image_rows, counts))


def _numbered(values: Iterable[str | None]) -> Int64Array:
    """Number distinct texts in the order they first appear; None is -1."""
    numbers: dict[str, int] = {}
    return np.array([-1 if one is None else numbers.setdefault(one, len(numbers)) for one in values], dtype=np.int64)


def _normalised(caption: str) -> str:
    """Normalise case, spaces and final full stops, which do not distinguish captions."""
    return " ".join(caption.casefold().split()).rstrip(" .!")
