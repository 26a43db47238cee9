"""Near-duplicates: resized, recompressed or slightly edited copies, shown as one result.

Embeddings alone are not enough to find them: the cosine of a small image and its copy saved at half the quality can be
as low as 0.85, which is also that of two photos of dogs in snow. The states stored for the matcher are enough, because
there is one per patch: patch by patch, copies have a mean cosine of 0.8 to 0.95, and other images, however similar,
barely 0.6.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from sightline.arrays import BoolArray, Float32Array
from sightline.retrieval.candidates import Candidates
from sightline.stores.base import Ids, Store

Duplicates = Literal["fold", "show"]
IsSame = Callable[[int, Ids], BoolArray]
"""Given the index of one image and those of some others, returns which of the others are the same."""

ALIKE = 0.75
"""Minimum mean patch cosine for images to count as the same, and minimum embedding cosine to compare their patches."""

IDENTICAL = 0.95
"""Minimum embedding cosine for images to count as the same if no patches are stored."""

_AHEAD = 16  # images whose patches are read at once


def leaders(embeddings: Float32Array, least: float, is_same: IsSame | None = None) -> Ids:
    """Return, for each of the images [n, dim], best first, the first image that it is a copy of, perhaps itself.

    least: the minimum cosine for two images to be the same. is_same: compares images above it more closely.

    Images are compared only with leaders, not with their copies, so that a chain of small changes, such as the frames
    of a film, does not become one image.

    >>> leaders(np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32), 0.95).tolist()
    [0, 1, 0]
    """
    found = np.arange(len(embeddings))
    led = np.empty_like(embeddings)
    places = np.empty(len(embeddings), dtype=np.int64)
    count = 0
    for item, embedding in enumerate(embeddings):
        alike = places[:count][led[:count] @ embedding >= least]
        if is_same is not None and len(alike):
            alike = alike[is_same(item, alike)]
        if len(alike):
            found[item] = alike[0]
        else:
            led[count], places[count] = embedding, item
            count += 1
    return found


@dataclass(slots=True)
class Patches:
    """Compares images of a store, by their index in `ids`, patch by patch.

    kept: the patches of leaders, of which there are few. ahead: the patches of the images to be compared next.
    """

    store: Store
    ids: Ids
    kept: dict[int, Float32Array] = field(default_factory=dict)
    ahead: dict[int, Float32Array] = field(default_factory=dict)

    def is_same(self, one: int, others: Ids) -> BoolArray:
        """Return whether each of the other images has the same patches at the same positions."""
        own = self._read(one)
        return np.array([_agreement(own, self._patches(int(other))) >= ALIKE for other in others], dtype=np.bool_)

    def _patches(self, place: int) -> Float32Array:
        if place not in self.kept:
            self.kept[place] = self._read(place)
        return self.kept[place]

    def _read(self, place: int) -> Float32Array:
        """Return the states [patches, width] of an image, each of unit length; reads several images at a time."""
        if place not in self.ahead:
            found = self.store.fetch(self.ids[place : place + _AHEAD], "states")
            lengths = np.linalg.norm(found.values, axis=-1, keepdims=True)
            units = np.divide(found.values, lengths, out=np.zeros_like(found.values), where=lengths > 0)
            counts = found.mask.sum(axis=1)
            self.ahead = {place + i: units[i, :count] for i, count in enumerate(counts.tolist())}
        return self.ahead[place]


def _agreement(one: Float32Array, other: Float32Array) -> float:
    """Return the mean cosine of patches, computed without threads, which would cost more than they gain here."""
    return float((one * other).sum()) / max(1, len(one)) if one.shape == other.shape else 0.0


def folded(candidates: Candidates, embeddings: Float32Array, store: Store, apart: BoolArray) -> Candidates:
    """Keep only the best of the images that look the same, with the ids of the others.

    apart: which candidates [n] are not images; these are all kept, because two videos are not the same just because
    they share a moment.
    """
    leading, images = np.arange(len(candidates)), np.flatnonzero(~apart)
    if store.shape.states:
        leading[images] = images[leaders(embeddings[images], ALIKE, Patches(store, candidates.ids[images]).is_same)]
    else:
        leading[images] = images[leaders(embeddings[images], IDENTICAL)]
    followers: dict[int, tuple[int, ...]] = {}
    for place in np.flatnonzero(leading != np.arange(len(leading))):
        leader = int(candidates.ids[leading[place]])
        followers[leader] = (*followers.get(leader, ()), int(candidates.ids[place]))
    return replace(candidates, folded=followers).taken(np.flatnonzero(leading == np.arange(len(leading))))
