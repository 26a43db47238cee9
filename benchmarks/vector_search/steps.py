"""The steps of measuring an index, each in its own process: build, tune, search."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photo_vectors import Ids, Vectors, around, blocks, real, recall, truth
from benchmarks.timing import percentiles
from benchmarks.vector_search.indexes import OURS, Index, Kind, vectors_of

LEAST_RECALL, ALL = 0.97, 0.999  # no index has to reach a recall above ALL
EQUAL, LEAST = "finding as much as Sightline", f"at a recall of {LEAST_RECALL}"


@dataclass(frozen=True)
class Case:
    """A benchmark with a given number of vectors, in a work folder.

    photos, queries: how many to use; care: the build effort of graphs; seconds: the time per measurement.
    """

    work: str
    size: int
    model: str
    photos: int
    queries: int
    care: int
    seconds: float

    @property
    def at(self) -> Path:
        """The folder for built indexes."""
        return Path(self.work, f"{self.size}")

    def real(self) -> tuple[Vectors, Vectors]:
        """Return the embeddings of photos and captions."""
        return real(Path(self.work, "embeddings.npz"), self.model, self.photos)

    def asked(self) -> Vectors:
        """Return the embeddings of captions [queries, dim], taken at even intervals from all captions."""
        _, captions = self.real()
        evenly: Vectors = captions[np.linspace(0, len(captions) - 1, self.queries).astype(int)]
        return evenly

    def right(self) -> Ids:
        """Return the right answers [queries, TOP], computed once by exhaustive search."""
        file = self.at / "right.npy"
        if not file.exists():
            np.save(file, truth(vectors_of(self.at / OURS.folder), self.asked()))
        found: Ids = np.load(file)
        return found


def build(case: Case, kind: Kind) -> dict[str, float]:
    """Build an index; returns its size on disk, and the seconds taken, without the time to make or read vectors."""
    folder = case.at / kind.folder
    folder.mkdir(parents=True)
    ours = kind.folder == OURS.folder
    waited: list[float] = []
    parts = timed(around(case.real()[0], case.size) if ours else blocks(vectors_of(case.at / OURS.folder)), waited)
    started = time.perf_counter()
    kind.build(parts, folder, case.care)
    seconds = time.perf_counter() - started - sum(waited)
    return {"build_seconds": seconds, "MB_on_disk": sum(file.stat().st_size for file in folder.iterdir()) / 1e6}


def timed(parts: Iterator[Vectors], waited: list[float]) -> Iterator[Vectors]:
    """Yield blocks of vectors, and append the seconds spent waiting for each to `waited`."""
    began = time.perf_counter()
    for some in parts:
        waited.append(time.perf_counter() - began)
        yield some
        began = time.perf_counter()


def search(case: Case, kind: Kind, cores: int, ours: float) -> dict[str, Any]:
    """Measure recall and time of an index at each target recall: tuned on every other query, measured on the rest.

    ours: Sightline's recall, which other indexes are tuned to reach.
    """
    with closing(kind.open(case.at / kind.folder, cores)) as index:
        queries, right = case.asked(), case.right()
        tuned = partial(least_effort, index, queries[::2], right[::2])
        efforts: dict[str, int | None] = {EQUAL: None}
        if index.limits is not None:
            if kind is not OURS:
                efforts[EQUAL] = tuned(max(min(ours, ALL), LEAST_RECALL))
            efforts[LEAST] = tuned(LEAST_RECALL)
        measured = partial(measure, queries[1::2], case.seconds)
        return {
            aim: {"effort": effort, **measured(partial(index.search, effort=effort), right[1::2])}
            for aim, effort in efforts.items()
        }


def least_effort(index: Index, queries: Vectors, right: Ids, target: float) -> int:
    """Find the minimum effort that reaches a recall, to within a sixteenth; the maximum effort if none does."""
    limits = index.limits
    assert limits is not None

    def is_enough(effort: int) -> bool:
        return recall([index.search(query, effort) for query in queries], right) >= target

    low = high = limits[0]
    while high < limits[1] and not is_enough(high):
        low, high = high, min(2 * high, limits[1])
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def measure(queries: Vectors, seconds: float, one: Callable[[Vectors], Ids], right: Ids) -> dict[str, float]:
    """Measure the recall, and the milliseconds per query over as many rounds as the time permits.

    The first round may take up to four times `seconds`; beyond that it is stopped, if it has run ten queries.
    """
    one(queries[0])
    answers: list[Ids] = []
    took: list[float] = []
    began = time.perf_counter()
    while len(took) < len(queries) or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        answers.append(one(queries[len(took) % len(queries)]))
        took.append(1000 * (time.perf_counter() - start))
        if len(took) >= 10 and time.perf_counter() - began > 4 * seconds:
            break
    first = answers[: len(queries)]
    return {"recall@20": recall(first, right[: len(first)]), **percentiles(took)}
