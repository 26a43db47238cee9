"""Moments of videos: a video has many vectors, but a search shows it as one result, at its best moments."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from sightline.arrays import BoolArray, Int64Array
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.query import EncodedQuery
from sightline.stores.base import Store

MOST_SHOWN = 5
"""The maximum number of moments that a result lists."""


class Moments(Protocol):
    """Looks up which items are moments of which videos."""

    def videos(self, ids: Sequence[int]) -> Mapping[int, int]:
        """Map the ids that are moments to their videos; ids of images are left out."""
        ...

    def of(self, videos: Sequence[int]) -> Mapping[int, Mapping[int, float]]:
        """Return, for each of some videos, the ids of its moments, in order of time, and their seconds."""
        ...


def best_of_each(ids: Int64Array, moments: Moments | None) -> tuple[Int64Array, BoolArray]:
    """Return the positions of all images and of each video's first moment in `ids`, and which of these are moments."""
    if moments is None:
        return np.arange(len(ids)), np.zeros(len(ids), dtype=np.bool_)
    videos = moments.videos(ids.tolist())
    firsts: dict[int, int] = {}
    for place, id in enumerate(ids.tolist()):
        firsts.setdefault(videos.get(id, -id - 1), place)
    places = np.array(sorted(firsts.values()), dtype=np.int64)
    return places, np.array([int(id) in videos for id in ids[places]], dtype=np.bool_)


def with_moments(
    candidates: Candidates, count: int, query: EncodedQuery, store: Store, moments: Moments | None
) -> Candidates:
    """Add the times of their best moments, best first, to the videos among the first `count` candidates.

    The moment that was ranked comes first; the others follow by the cosine of their embeddings.
    """
    videos = moments.videos(candidates.ids[:count].tolist()) if moments else {}
    if moments is None or not videos:
        return candidates
    every = moments.of(sorted(set(videos.values())))
    found = {}
    for id, video in videos.items():
        seconds = every.get(video, {})
        others = np.array([one for one in seconds if one != id], dtype=np.int64)
        if len(others):
            cosines = store.fetch(others, "embedding").values[:, 0] @ query.vector
            others = others[np.argsort(-cosines, kind="stable")][: MOST_SHOWN - 1]
        found[id] = tuple(seconds[one] for one in (id, *others.tolist()) if one in seconds)
    return replace(candidates, moments=found)
