"""Build, open and search nearest-neighbour indexes in their usual configuration."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photo_vectors import TOP, Halves, Ids, Vectors
from sightline.bundle.encoded import Encoded
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore
from sightline.stores.local_search import Effort

LINKS, FILE = 16, "index"
"""Links per vector on each layer of a graph but the lowest, which has twice as many; the FAISS or usearch file."""
MOST_EFFORT = 2_048


class Index(ABC):
    """An open index. Effort is an integer: more effort gives a higher recall, but takes longer.

    limits: the minimum and maximum effort; None if the search is exhaustive.
    """

    limits: tuple[int, int] | None = None

    @abstractmethod
    def search(self, query: Vectors, effort: int | None = None) -> Ids:
        """Return the ids of the TOP best items for a query [dim]."""

    def close(self) -> None:  # noqa: B027
        """Close files; an index in memory has none."""


@dataclass(frozen=True)
class Kind:
    """A kind of index. `build` makes it in a folder, from blocks of vectors; `care` is the build effort of a graph.

    folder: where it is built, shared by kinds that differ only in how they are searched.
    package: the required package. up_to: with more vectors than this, the kind is skipped, for the reason `why`.
    """

    name: str
    folder: str
    build: Callable[[Iterator[Vectors], Path, int], None]
    open: Callable[[Path, int], Index]
    package: str = "sightline"
    up_to: int = 10**9
    why: str = ""


class Store(Index):
    """Sightline's local store; its effort is the number of candidates, or None for the store's default."""

    def __init__(self, folder: Path, effort: Effort) -> None:
        self._folder, self._own, self._shape = folder, effort, Shape(vectors_of(folder).shape[1])
        self._opened: tuple[int | None, LocalStore] | None = None
        store = self._reading(None)
        self.limits = None if store.stats().index == "exact" else (TOP, len(store))

    def _reading(self, effort: int | None) -> LocalStore:
        if self._opened is None or self._opened[0] != effort:
            self.close()
            own = self._own
            if effort is not None:
                own = replace(own, candidates=effort, items_per_candidate=10**9, candidates_per_result=1)
            self._opened = effort, LocalStore.open(self._folder, self._shape, write=False, effort=own)
        return self._opened[1]

    def search(self, query: Vectors, effort: int | None = None) -> Ids:
        """See `Index`."""
        found: Ids = self._reading(effort).search(query[None], TOP).ids[0]
        return found

    def close(self) -> None:
        """See `Index`."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None


class Faiss(Index):
    """A FAISS index; for HNSW, the effort is the size of the candidate list (efSearch)."""

    def __init__(self, folder: Path, cores: int) -> None:
        import faiss

        faiss.omp_set_num_threads(cores)
        self._faiss: Any = faiss  # the type stubs of FAISS are incomplete
        self._index = self._faiss.read_index(str(folder / FILE))
        self.limits = (TOP, MOST_EFFORT) if hasattr(self._index, "hnsw") else None

    def search(self, query: Vectors, effort: int | None = None) -> Ids:
        """See `Index`."""
        wanted = None if effort is None else self._faiss.SearchParametersHNSW(efSearch=effort)
        found: Ids = self._index.search(query[None], TOP, params=wanted)[1][0]
        return found[found >= 0]


class Usearch(Index):
    """A usearch graph."""

    limits = TOP, MOST_EFFORT

    def __init__(self, folder: Path, cores: int) -> None:
        import usearch.index

        self._cores, self._index = cores, usearch.index.Index.restore(folder / FILE)

    def search(self, query: Vectors, effort: int | None = None) -> Ids:
        """See `Index`."""
        self._index.expansion_search = max(effort or 0, TOP)
        found: Ids = self._index.search(query, TOP, threads=self._cores).keys.astype(np.int64)
        return found


def vectors_of(folder: Path) -> Halves:
    """Return the vectors of a local store [rows, dim], as stored on disk."""
    rows = (folder / "ids.0").stat().st_size // 8
    return np.memmap(folder / "embeddings.0", np.float16, "r").reshape(rows, -1)


def _store(parts: Iterator[Vectors], folder: Path, care: int) -> None:
    first, start = next(parts), 0
    with closing(LocalStore.open(folder, Shape(first.shape[1]), write=True)) as store:
        for some in chain([first], parts):
            store.add(start + np.arange(len(some)), Encoded(some, np.ones((len(some), 1), dtype=np.bool_)))
            start += len(some)


def _faiss(parts: Iterator[Vectors], folder: Path, care: int, graph: bool) -> None:
    """A flat index, or a graph (HNSW) with vectors in float16."""
    import faiss

    first = next(parts)
    index: Any = faiss.IndexFlatIP(first.shape[1])
    if graph:
        make: Any = faiss.IndexHNSWSQ  # the type stub of this class is wrong
        index = make(first.shape[1], faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = care
    for some in chain([first], parts):
        index.add(some)
    faiss.write_index(index, str(folder / FILE))


def _usearch(parts: Iterator[Vectors], folder: Path, care: int) -> None:
    from usearch.index import Index as Graph

    first = next(parts)
    index = Graph(ndim=first.shape[1], metric="ip", dtype="f16", connectivity=LINKS, expansion_add=care)
    for some in chain([first], parts):
        index.add(np.arange(len(index), len(index) + len(some)), some)
    index.save(folder / FILE)


FLAT, HNSW = partial(_faiss, graph=False), partial(_faiss, graph=True)
MILLION, HOURS = 1_000_000, "a graph of so many takes hours to build"
OURS = Kind("Sightline", "sightline", _store, lambda at, cores: Store(at, Effort()))
KINDS = (
    OURS,
    replace(OURS, name="Sightline, all compared", open=lambda at, cores: Store(at, Effort(10**9))),
    Kind("FAISS flat", "flat", FLAT, Faiss, "faiss", MILLION, "so many in float32 take 20 GB of memory"),
    Kind("FAISS HNSW", "hnsw", HNSW, Faiss, "faiss", MILLION, HOURS),
    Kind("usearch HNSW", "usearch", _usearch, Usearch, "usearch", MILLION, HOURS),
)
"""Sightline comes first: the others read its vectors, and are tuned to its recall."""
