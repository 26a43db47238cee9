"""Ways of finding the nearest of many vectors, as a user would have each: built into a folder, opened, and asked."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.photo_vectors import TOP, Halves, Longs, Singles
from sightline.bundle.encoded import Encoded
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore
from sightline.stores.local_search import Effort

LINKS, FILE = 16, "index"
"""Links of a vector on each layer of a graph but the lowest, which has twice as many; where peers write theirs."""
MOST_EFFORT = 2_048


class Index(Protocol):
    """An index that was opened; its effort is a whole number: the greater, the more is found, and the slower."""

    def efforts(self) -> tuple[int, int] | None:
        """The least effort and the greatest; None where everything is compared."""

    def ask(self, query: Singles, effort: int | None = None, among: Longs | None = None) -> Longs:
        """The ids of the TOP best for a query [dim]; among: only these ids, in ascending order."""

    def add(self, vectors: Singles) -> None:
        """Add vectors [n, dim] under the next ids, so that they last."""

    def delete(self, ids: Longs) -> None:
        """Forget ids, so that it lasts; NotImplementedError says why an index does not."""

    def close(self) -> None:
        """Let go of files."""


@dataclass(frozen=True)
class Way:
    """A way of searching: `build` makes what it needs in a folder, from vectors that come in blocks.

    Its last argument is the care that a graph takes over each of them. key: a short name for files. folder: where it
    is built, under the key of another way if it shares that. package: what must be installed. up_to: beyond so many
    vectors it is left out, and `why`.
    """

    name: str
    key: str
    folder: str
    build: Callable[[Iterator[Singles], Path, int], None]
    open: Callable[[Path, int], Index]
    package: str = "sightline"
    up_to: int = 10**9
    why: str = ""


class Store:
    """Sightline's own store; its effort is the number of candidates, and None stands for its own choice of that."""

    def __init__(self, folder: Path, effort: Effort) -> None:
        self._folder, self._own = folder, effort
        self._shape = Shape(vectors_of(folder).shape[1])
        self._opened: tuple[int | None, LocalStore] | None = None

    def _reading(self, effort: int | None) -> LocalStore:
        if self._opened is None or self._opened[0] != effort:
            self.close()
            own = self._own
            if effort is not None:
                own = replace(own, candidates=effort, items_per_candidate=10**9, candidates_per_result=1)
            self._opened = effort, LocalStore.open(self._folder, self._shape, write=False, effort=own)
        return self._opened[1]

    def efforts(self) -> tuple[int, int] | None:
        """From as many candidates as there are results to all items."""
        store = self._reading(None)
        return None if store.stats().index == "exact" else (TOP, len(store))

    def ask(self, query: Singles, effort: int | None = None, among: Longs | None = None) -> Longs:
        """As `Index` says."""
        found: Longs = self._reading(effort).search(query[None], TOP, among).ids[0]
        return found

    def add(self, vectors: Singles) -> None:
        """As `Index` says."""
        with closing(LocalStore.open(self._folder, self._shape, write=True)) as store:
            fill(store, [vectors])
        self.close()

    def delete(self, ids: Longs) -> None:
        """As `Index` says."""
        with closing(LocalStore.open(self._folder, self._shape, write=True)) as store:
            store.delete(ids)
        self.close()

    def close(self) -> None:
        """Let go of the files; they are opened again when they are asked for."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None


class Faiss:
    """An index of FAISS; only that of a graph, HNSW, has an effort."""

    def __init__(self, folder: Path, cores: int) -> None:
        import faiss

        faiss.omp_set_num_threads(cores)
        self._faiss: Any = faiss  # its stubs leave much out
        self._file = folder / FILE
        self._index = self._faiss.read_index(str(self._file))
        self._ids = np.arange(self._index.ntotal)

    def efforts(self) -> tuple[int, int] | None:
        """How many neighbours are kept in sight."""
        return (TOP, MOST_EFFORT) if hasattr(self._index, "hnsw") else None

    def ask(self, query: Singles, effort: int | None = None, among: Longs | None = None) -> Longs:
        """As `Index` says."""
        selector = {} if among is None else {"sel": self._selector(among)}
        if effort is None:
            wanted = self._faiss.SearchParameters(**selector)
        else:
            wanted = self._faiss.SearchParametersHNSW(efSearch=effort, **selector)
        found: Longs = self._index.search(query[None], TOP, params=wanted)[1][0]
        return self._ids[found[found >= 0]]

    def _selector(self, ids: Longs) -> Any:
        mask = np.zeros(self._index.ntotal, dtype=np.bool_)
        mask[ids] = True
        return self._faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))

    def add(self, vectors: Singles) -> None:
        """As `Index` says."""
        self._ids = np.concatenate([self._ids, np.arange(len(vectors)) + self._ids[-1] + 1])
        self._index.add(vectors)
        self._faiss.write_index(self._index, str(self._file))

    def delete(self, ids: Longs) -> None:
        """As `Index` says."""
        if self.efforts():
            raise NotImplementedError("it has no way to delete: build it anew, or filter at every search")
        self._index.remove_ids(self._selector(ids))
        self._ids = np.delete(self._ids, ids)
        self._faiss.write_index(self._index, str(self._file))

    def close(self) -> None:
        """It is all in memory."""


class Usearch:
    """An index of usearch, a graph too. It has no filter in Python: more is asked for, and sorted out afterwards."""

    def __init__(self, folder: Path, cores: int) -> None:
        import usearch.index

        self._file, self._cores = folder / FILE, cores
        self._index: Any = usearch.index.Index.restore(self._file)
        self._next = len(self._index)

    def efforts(self) -> tuple[int, int] | None:
        """How many neighbours are kept in sight."""
        return TOP, MOST_EFFORT

    def ask(self, query: Singles, effort: int | None = None, among: Longs | None = None) -> Longs:
        """As `Index` says."""
        count = TOP
        if among is not None:
            count = min(len(self._index), TOP + int(1.5 * TOP * len(self._index) / len(among)))
        self._index.expansion_search = max(effort or 0, count)
        found: Longs = self._index.search(query, count, threads=self._cores).keys.astype(np.int64)
        if among is not None:
            places = np.searchsorted(among, found)
            found = found[among[np.minimum(places, len(among) - 1)] == found]
        return found[:TOP]

    def add(self, vectors: Singles) -> None:
        """As `Index` says."""
        self._index.add(self._next + np.arange(len(vectors)), vectors, threads=self._cores)
        self._next += len(vectors)
        self._index.save(self._file)

    def delete(self, ids: Longs) -> None:
        """As `Index` says."""
        self._index.remove(ids, threads=self._cores)
        self._index.save(self._file)

    def close(self) -> None:
        """It is all in memory."""


def fill(store: LocalStore, parts: Iterable[Singles]) -> None:
    """Add vectors under the next ids."""
    first = int(store.ids().max(initial=-1)) + 1
    for some in parts:
        store.add(first + np.arange(len(some)), Encoded(some, np.ones((len(some), 1), dtype=np.bool_)))
        first += len(some)


def vectors_of(folder: Path) -> Halves:
    """The vectors of a store in a folder [rows, dim], as they lie on the disk."""
    rows = (folder / "ids.0").stat().st_size // 8
    return np.memmap(folder / "embeddings.0", np.float16, "r").reshape(rows, -1)


def _store(parts: Iterator[Singles], folder: Path, care: int) -> None:
    first = next(parts)
    with closing(LocalStore.open(folder, Shape(first.shape[1]), write=True)) as store:
        fill(store, chain([first], parts))


def _flat(parts: Iterator[Singles], folder: Path, care: int) -> None:
    import faiss

    first = next(parts)
    _write_faiss(faiss.IndexFlatIP(first.shape[1]), chain([first], parts), folder)


def _graph(parts: Iterator[Singles], folder: Path, care: int) -> None:
    import faiss

    first = next(parts)
    of: Any = faiss.IndexHNSWSQ  # whose stubs are wrong
    index = of(first.shape[1], faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = care
    _write_faiss(index, chain([first], parts), folder)


def _write_faiss(index: Any, parts: Iterable[Singles], folder: Path) -> None:
    import faiss

    for some in parts:
        index.add(some)
    faiss.write_index(index, str(folder / FILE))


def _usearch(parts: Iterator[Singles], folder: Path, care: int) -> None:
    from usearch.index import Index as Graph

    first = next(parts)
    index = Graph(ndim=first.shape[1], metric="ip", dtype="f16", connectivity=LINKS, expansion_add=care)
    for some in chain([first], parts):
        index.add(np.arange(len(index), len(index) + len(some)), some)
    index.save(folder / FILE)


MILLION, HOURS = 1_000_000, "a graph of so many takes hours to build on two cores"
OURS = Way("Sightline", "sightline", "sightline", _store, lambda at, cores: Store(at, Effort()))
WAYS = (
    OURS,
    replace(OURS, name="Sightline, all compared", key="all", open=lambda at, cores: Store(at, Effort(10**9))),
    Way("FAISS flat", "flat", "flat", _flat, Faiss, "faiss", MILLION, "so many in float32 are 20 GB of memory"),
    Way("FAISS HNSW", "hnsw", "hnsw", _graph, Faiss, "faiss", MILLION, HOURS),
    Way("usearch HNSW", "usearch", "usearch", _usearch, Usearch, "usearch", MILLION, HOURS),
)
"""Sightline comes first: the others read its vectors, and are tuned to find as much."""
