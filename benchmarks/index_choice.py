"""Which way of searching the local store should use: recall, time, memory and building, by size.

    python -m benchmarks.index_choice --embeddings embeddings.npz

Encodes Flickr8k's test set once (or made-up photos, without SIGHTLINE_DATA), makes 10,000 to a million vectors around
the real ones, asks them captions, and writes index_choice.json, from which `make results` writes docs/index-choice.md.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks import samples
from benchmarks.photo_vectors import BLOCK, TOP, Halves, Ids, Real, Vectors, around, blocks, real, recall, truth, unit
from benchmarks.provenance import RESULTS, provenance, read_result, write_result
from benchmarks.timing import numbers, options, seconds_of
from sightline.bundle.encoded import Encoded
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore
from sightline.stores.ranking import top_k_rows
from sightline.stores.sign_codes import nearest_codes, sign_codes

THREADS = 2
HNSW_UP_TO = 100_000  # beyond, building takes too long
CANDIDATES = (50, 100, 512, 1024, 2048, 4096, 8192)
Search = Callable[[Vectors], Ids]


@dataclass(frozen=True)
class Way:
    """A way of searching: `build` makes an index of vectors, and `open` gives the search for one query."""

    name: str
    build: Callable[[Halves], Any]
    open: Callable[[Any, Halves], Search]
    up_to: int = 10**9


def ways() -> list[Way]:
    """Everything that is compared."""
    product, fp16, int8 = faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer.QT_fp16, faiss.ScalarQuantizer.QT_8bit
    scalar, rabitq = faiss.IndexScalarQuantizer, faiss.IndexRaBitQFastScan

    def hnsw(dim: int) -> Any:
        make: Any = faiss.IndexHNSWSQ  # whose stubs are wrong
        index = make(dim, fp16, 32, product)
        index.hnsw.efConstruction, index.hnsw.efSearch = 80, 96
        return index

    def refined(dim: int) -> Any:
        index = faiss.IndexRefine(rabitq(dim, product), scalar(dim, fp16, product))
        index.k_factor = 500 / TOP
        return index

    indexes: dict[str, tuple[Callable[[int], Any], int]] = {
        "exact: IndexFlat, float32": (faiss.IndexFlatIP, 0),
        "exact: IndexScalarQuantizer fp16": (lambda dim: scalar(dim, fp16, product), 0),
        "IndexScalarQuantizer 8bit, 100 rescored": (lambda dim: scalar(dim, int8, product), 100),
        "IndexPQFastScan 128x4, 500 rescored": (lambda dim: faiss.IndexPQFastScan(dim, dim // 4, 4, product), 500),
        "IndexRaBitQ, 500 rescored": (lambda dim: faiss.IndexRaBitQ(dim, product), 500),
        "IndexRaBitQFastScan, 500 rescored": (lambda dim: rabitq(dim, product), 500),
        "IndexRefine: RaBitQFastScan + fp16": (refined, 0),
    }
    return [
        Way("exact: float16 in blocks, numpy", lambda vectors: None, lambda _, vectors: partial(exact, vectors, None)),
        *(Way(name, partial(trained, make), partial(by_index, count)) for name, (make, count) in indexes.items()),
        Way("IndexHNSWSQ fp16, M 32, ef 96", partial(trained, hnsw), partial(by_index, 0), HNSW_UP_TO),
        *(Way(f"signs, {n} rescored", codes_of, partial(by_signs, n)) for n in (512, 1024, 2048, 4096)),
    ]


def trained(make: Callable[[int], Any], vectors: Halves) -> Any:
    """An index of FAISS, trained on a sample and filled."""
    index = make(vectors.shape[1])
    index.train(vectors[:: max(1, len(vectors) // 5_000)].astype(np.float32))
    for some in blocks(vectors):
        index.add(some)
    return index


def exact(vectors: Halves, rows: Ids | None, query: Vectors) -> Ids:
    """The TOP best of some rows, or of all, compared exactly."""
    every = np.arange(len(vectors))
    found: Ids = top_k_rows(vectors, every, every if rows is None else rows, query[None], TOP).ids[0]
    return found


def by_index(candidates: int, index: Any, vectors: Halves) -> Search:
    """Search an index of FAISS; with candidates, ask it for so many and compare these exactly."""

    def search(query: Vectors) -> Ids:
        near: Ids = index.search(query[None], candidates or TOP)[1][0]
        return exact(vectors, np.sort(near[near >= 0]), query) if candidates else near

    return search


def codes_of(vectors: Halves) -> Any:
    """The signs of vectors."""
    return np.concatenate([sign_codes(some) for some in blocks(vectors)])


def by_signs(candidates: int, codes: Any, vectors: Halves) -> Search:
    """Compare signs, and then the nearest so many exactly."""
    return lambda query: exact(vectors, nearest_codes(codes, sign_codes(query[None])[0], candidates), query)


def measure(way: Way, vectors: Halves, queries: Vectors, right: Ids, file: Path) -> dict[str, Any]:
    """Build and search one way."""
    start = time.perf_counter()
    index = way.build(vectors)
    built = time.perf_counter() - start
    size, loaded = getattr(index, "nbytes", 0), 0.0  # signs are read through a memory map
    if index is not None and not isinstance(index, np.ndarray):
        faiss.write_index(index, str(file))
        size, loaded = file.stat().st_size, seconds_of(lambda: faiss.read_index(str(file)))
    search = way.open(index, vectors)
    found = {"way": way.name, "queries": len(queries), "recall@20": recall(map(search, queries), right)}
    found |= {"ms": median_ms(search, queries), "megabytes": size / 1e6, "build_seconds": built}
    return found | {"load_seconds": loaded, "load_average": round(os.getloadavg()[0], 1)}


def median_ms(search: Search, queries: Vectors, rounds: int = 5, seconds: float = 10.0) -> float:
    """The median over queries of the best of a few rounds; no further round after ten seconds."""
    took, began = np.full((rounds, len(queries)), np.inf), time.perf_counter()
    for one in took:
        one[:] = [seconds_of(partial(search, query)) for query in queries]
        if time.perf_counter() - began > seconds:
            break
    return float(np.median(took.min(axis=0))) * 1e3


def stored(vectors: Any, count: int, dim: int, file: Path) -> Halves:
    """Blocks of vectors in a file, in float16."""
    kept = np.memmap(file, np.float16, "w+", shape=(count, dim))
    for number, some in enumerate(vectors):
        kept[number * BLOCK :][: len(some)] = some
    return np.memmap(file, np.float16, "r", shape=kept.shape)


def robustness(real: Real, folder: Path) -> list[dict[str, Any]]:
    """Recall of choosing candidates by signs where vectors are of another kind."""
    dim, rng, few = real.images.shape[1], np.random.default_rng(1), real.captions[::25]
    gap = unit(rng.standard_normal((2, dim)).astype(np.float32) ** 3)
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)

    def of(change: Callable[[Vectors], Vectors], count: int = 100_000) -> Halves:
        return stored(map(change, around(real, count)), count, change(real.images[:1]).shape[1], folder / "kind")

    def with_gap(vectors: Vectors, side: int) -> Vectors:
        return unit(0.6 * vectors + 0.8 * gap[side])

    def shorter(width: int, vectors: Vectors) -> Vectors:
        return unit(vectors @ turn[:, :width])

    gapped = partial(with_gap, side=0)
    kinds: dict[str, Callable[[], tuple[Halves, Vectors]]] = {
        "as the model makes them": lambda: (of(lambda vectors: vectors), few),
        "with a modality gap": lambda: (of(gapped), with_gap(few, 1)),
        "256 numbers": lambda: (of(partial(shorter, 256)), shorter(256, few)),
        "128 numbers": lambda: (of(partial(shorter, 128)), shorter(128, few)),
        "only the 1,000 real images": lambda: (real.images.astype(np.float16), few),
        "with a modality gap, 1,000,000 of them": lambda: (of(gapped, 1_000_000), with_gap(real.captions[::50], 1)),
    }
    rows = []
    for name, make in kinds.items():
        vectors, queries = make()
        right, codes = truth(vectors, queries), codes_of(vectors)
        for count in CANDIDATES:
            near = [nearest_codes(codes, code, count) for code in sign_codes(queries)]
            rows.append({"vectors": name, "candidates": count, "recall@20": round(recall(near, right), 4)})
    return rows


def the_store(vectors: Halves, queries: Vectors, right: Ids, folder: Path) -> dict[str, Any]:
    """The local store: filled, opened, searched, filtered, added to, and some of it deleted."""
    shape, ids, start = Shape(vectors.shape[1]), np.arange(len(vectors)), time.perf_counter()
    store = LocalStore.open(folder, shape, write=True)
    for number, some in enumerate(blocks(vectors)):
        store.add(ids[number * BLOCK :][: len(some)], Encoded(some, np.ones((len(some), 1), dtype=np.bool_)))
    store.flush()
    row: dict[str, Any] = {"vectors": len(vectors), "fill_seconds": time.perf_counter() - start}
    store.close()
    start = time.perf_counter()
    store = LocalStore.open(folder, shape, write=True)
    row["open_ms"] = 1e3 * (time.perf_counter() - start)
    row["first_search_ms"] = 1e3 * seconds_of(lambda: store.search(queries[:1], TOP))
    row["recall@20"] = recall(store.search(queries, TOP).ids, right)

    def searching(where: Ids | None) -> Search:
        return lambda query: store.search(query[None], TOP, where).ids[0]

    row["ms"] = median_ms(searching(None), queries)
    for name, where in (("half", ids[::2]), ("thousand", ids[:: max(1, len(ids) // 1000)])):
        row[f"ms_of_{name}"] = median_ms(searching(where), queries[:30])
    new = Encoded(vectors[:100].astype(np.float32), np.ones((100, 1), dtype=np.bool_))

    def add() -> None:
        store.add(np.arange(100) + len(ids), new)
        store.flush()

    row["add_100_and_flush_ms"] = 1e3 * seconds_of(add)
    store.delete(ids[::10])
    row["ms_with_a_tenth_deleted"] = median_ms(searching(None), queries[:30])
    row |= {"megabytes": store.stats().bytes / 1e6, "index": store.stats().index}
    store.close()
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def fetching(folder: Path, items: int = 2_000, patches: int = 49, width: int = 128) -> float:
    """Milliseconds to fetch the fragments of 200 items out of 2,000."""
    rng, store = np.random.default_rng(0), LocalStore.open(folder, Shape(8, width), write=True)
    fragments = rng.standard_normal((items, patches, width), dtype=np.float32)
    embedding = rng.standard_normal((items, 8), dtype=np.float32)
    store.add(np.arange(items), Encoded(embedding, np.ones((items, patches), dtype=np.bool_), fragments))
    chosen = [rng.choice(items, 200, replace=False) for _ in range(20)]
    took = [seconds_of(partial(store.fetch, some, "fragments")) for some in chosen]
    store.close()
    return round(float(np.median(took)) * 1e3, 2)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--embeddings", type=Path, default=Path("embeddings.npz"))
    parser.add_argument("--sizes", type=numbers, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--resume", action="store_true", help="keep the measurements that are there")
    arguments = parser.parse_args()
    path = arguments.json or RESULTS / "index_choice.json"
    result: dict[str, Any] = {"ways": [], "store": [], "robustness": [], "runs": []}
    result |= read_result(path) if arguments.resume else {}
    vectors, run = real(arguments.embeddings, arguments.model, 1_000), provenance(0, [samples.data()])
    result |= {"benchmark": "index_choice", **run, "faiss": faiss.__version__, "model": vectors.model}
    result["runs"] = [*result["runs"], {"command": run["command"], "commit": run["commit"]}]
    faiss.omp_set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not result["robustness"]:
            result |= {"robustness": robustness(vectors, folder), "fetch_200_ms": fetching(folder / "fragments")}
        for size in arguments.sizes:
            if any(row["vectors"] == size for row in result["store"]):
                continue
            queries = vectors.captions[:: len(vectors.captions) // (200 if size < 10**6 else 60)]
            made = stored(around(vectors, size), size, vectors.images.shape[1], folder / f"{size}")
            right = truth(made, queries)
            done = {row["way"] for row in result["ways"] if row["vectors"] == size}
            for way in (way for way in ways() if size <= way.up_to and way.name not in done):
                result["ways"].append({"vectors": size, **measure(way, made, queries, right, folder / "index")})
                print(result["ways"][-1], flush=True)
                write_result(path, result)
            result["store"].append(the_store(made, queries, right, folder / f"store-{size}"))
            write_result(path, result)


if __name__ == "__main__":
    main()
