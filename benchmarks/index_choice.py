"""Which way of searching the local store uses, from measurements: recall, time, memory and building, by size.

    python -m benchmarks.index_choice --model default --embeddings embeddings.npz

encodes Flickr8k's test set (SIGHTLINE_DATA) once and keeps the embeddings; makes collections of 10,000 to a million
vectors around the real ones; asks them real captions; writes benchmarks/results/index_choice.json and, from it,
docs/index-choice.md. With --page only the page is written again.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from benchmarks.photo_vectors import BLOCK, TOP, Halves, Longs, Real, Singles, around, blocks, real, recall, truth, unit
from benchmarks.provenance import RESULTS, provenance
from sightline.bundle.encoded import Encoded
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore
from sightline.stores.ranking import top_k_rows
from sightline.stores.sign_codes import nearest_codes, sign_codes

SIZES = (10_000, 100_000, 1_000_000)
THREADS = 2
HNSW_UP_TO = 100_000  # building takes a hundred times as long as that of signs there, and more beyond
Ask = Callable[[Singles], Longs]


@dataclass(frozen=True)
class Way:
    """A way of searching: `build` makes the index of some vectors, and `ask` searches it for one query."""

    name: str
    build: Callable[[Halves], Any]
    ask: Callable[[Any, Halves], Ask]
    up_to: int = 10**9


def kept(real: Real, count: int, file: Path) -> Halves:
    """So many vectors around real ones, in a file."""
    vectors = np.memmap(file, np.float16, "w+", shape=(count, real.images.shape[1]))
    for number, some in enumerate(around(real, count)):
        vectors[number * BLOCK :][: len(some)] = some
    return np.memmap(file, np.float16, "r", shape=vectors.shape)


def ways() -> list[Way]:
    product, quantizer = faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer

    def of(make: Callable[[int], Any], train: int = 1_000) -> Callable[[Halves], Any]:
        def build(vectors: Halves) -> Any:
            index = make(vectors.shape[1])
            step = max(1, len(vectors) // train)
            index.train(vectors[::step].astype(np.float32))
            for some in blocks(vectors):
                index.add(some)
            return index

        return build

    def hnsw(dim: int) -> Any:
        graph: Any = faiss.IndexHNSWSQ  # whose stubs are wrong
        index = graph(dim, quantizer.QT_fp16, 32, product)
        index.hnsw.efConstruction, index.hnsw.efSearch = 80, 96
        return index

    def refined(dim: int) -> Any:
        index = faiss.IndexRefine(
            faiss.IndexRaBitQFastScan(dim, product), faiss.IndexScalarQuantizer(dim, quantizer.QT_fp16, product)
        )
        index.k_factor = 500 / TOP
        return index

    return [
        Way("exact: float16 in blocks, numpy", lambda vectors: None, by_comparing_all),
        Way("exact: IndexFlat, float32", of(faiss.IndexFlatIP), by_index(0)),
        Way("exact: IndexScalarQuantizer fp16", of(lambda d: faiss.IndexScalarQuantizer(d, quantizer.QT_fp16, product)),
            by_index(0)),
        Way("IndexScalarQuantizer 8bit, 100 rescored",
            of(lambda d: faiss.IndexScalarQuantizer(d, quantizer.QT_8bit, product)), by_index(100)),
        Way("IndexPQFastScan 128x4, 500 rescored", of(lambda d: faiss.IndexPQFastScan(d, d // 4, 4, product), 5_000),
            by_index(500)),
        Way("IndexRaBitQ, 500 rescored", of(lambda d: faiss.IndexRaBitQ(d, product)), by_index(500)),
        Way("IndexRaBitQFastScan, 500 rescored", of(lambda d: faiss.IndexRaBitQFastScan(d, product)), by_index(500)),
        Way("IndexRefine: RaBitQFastScan + fp16", of(refined), by_index(0)),
        Way("IndexHNSWSQ fp16, M 32, ef 96", of(hnsw), by_index(0), HNSW_UP_TO),
        *(Way(f"signs, {n} rescored", codes_of, by_signs(n)) for n in (512, 1024, 2048, 4096)),
    ]  # fmt: skip


def by_comparing_all(_: Any, vectors: Halves) -> Ask:
    return lambda query: best(vectors, numbers(len(vectors)), query)


def best(vectors: Halves, rows: Longs, query: Singles) -> Longs:
    """The TOP best of some rows, compared exactly."""
    found: Longs = top_k_rows(vectors, numbers(len(vectors)), rows, query[None], TOP).ids[0]
    return found


@cache
def numbers(count: int) -> Longs:
    """The ids of all rows."""
    return np.arange(count)


def by_index(candidates: int) -> Callable[[Any, Halves], Ask]:
    """Ask a faiss index; with candidates, ask it for so many and compare these exactly."""

    def ask(index: Any, vectors: Halves) -> Ask:
        def one(query: Singles) -> Longs:
            near: Longs = index.search(query[None], candidates or TOP)[1][0]
            if not candidates:
                return near
            return best(vectors, np.sort(near[near >= 0]), query)

        return one

    return ask


def codes_of(vectors: Halves) -> npt.NDArray[np.uint8]:
    return np.concatenate([sign_codes(some) for some in blocks(vectors)])


def by_signs(candidates: int) -> Callable[[Any, Halves], Ask]:
    def ask(codes: Any, vectors: Halves) -> Ask:
        def one(query: Singles) -> Longs:
            near = nearest_codes(codes, sign_codes(query[None])[0], candidates)
            return best(vectors, near, query)

        return one

    return ask


def measure(way: Way, vectors: Halves, queries: Singles, right: Longs, folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    index = way.build(vectors)
    built = time.perf_counter() - start
    size, loaded = stored(index, folder / "index")
    ask = way.ask(index, vectors)
    found = recall([ask(query) for query in queries], right)
    return {
        "way": way.name,
        "queries": len(queries),
        "recall@20": round(found, 4),
        "ms": round(median_ms(ask, queries), 2),
        "megabytes": round(size / 1e6, 1),
        "build_seconds": round(built, 1),
        "load_seconds": round(loaded, 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def stored(index: Any, file: Path) -> tuple[int, float]:
    """The bytes that an index takes besides the vectors, and the seconds to read it back."""
    if index is None:
        return 0, 0.0
    if isinstance(index, np.ndarray):
        return index.nbytes, 0.0  # read through a memory map
    faiss.write_index(index, str(file))
    start = time.perf_counter()
    faiss.read_index(str(file))
    return file.stat().st_size, time.perf_counter() - start


def median_ms(ask: Ask, queries: Singles, rounds: int = 5, seconds: float = 10.0) -> float:
    """The median over queries of the best of a few rounds, because others use the machine at the same time.

    After ten seconds there is no further round.
    """
    took = np.full((rounds, len(queries)), np.inf)
    began = time.perf_counter()
    for one in took:
        for number, query in enumerate(queries):
            start = time.perf_counter()
            ask(query)
            one[number] = time.perf_counter() - start
        if time.perf_counter() - began > seconds:
            break
    return float(np.median(took.min(axis=0))) * 1e3


def robustness(real: Real, folder: Path, count: int = 100_000) -> list[dict[str, Any]]:
    """Recall of the choice of candidates by signs where vectors are of another kind."""
    plain = kept(real, count, folder / "robust").astype(np.float32)
    rng = np.random.default_rng(1)
    captions = real.captions[::25]
    gap = unit(rng.standard_normal((2, plain.shape[1])).astype(np.float32) ** 3)
    turn = np.linalg.qr(rng.standard_normal((plain.shape[1],) * 2))[0].astype(np.float32)
    kinds = {
        "as the model makes them": (plain, captions),
        "with a modality gap": (unit(0.6 * plain + 0.8 * gap[0]), unit(0.6 * captions + 0.8 * gap[1])),
        "256 numbers": (unit(plain @ turn[:, :256]), unit(captions @ turn[:, :256])),
        "128 numbers": (unit(plain @ turn[:, :128]), unit(captions @ turn[:, :128])),
        "only the 1,000 real images": (real.images, captions),
    }
    found = [recalls(name, vectors.astype(np.float16), queries) for name, (vectors, queries) in kinds.items()]
    return [*chain.from_iterable(found), *wide_gap(real, folder)]


def wide_gap(real: Real, folder: Path, count: int = 1_000_000) -> list[dict[str, Any]]:
    """The hardest kind again, over as many vectors as there are at most."""
    gap = unit(np.random.default_rng(1).standard_normal((2, real.images.shape[1])).astype(np.float32) ** 3)
    plain = kept(real, count, folder / "wide")
    vectors = np.memmap(folder / "gap", np.float16, "w+", shape=plain.shape)
    for number, some in enumerate(blocks(plain)):
        vectors[number * BLOCK :][: len(some)] = unit(0.6 * some + 0.8 * gap[0])
    queries = unit(0.6 * real.captions[::50] + 0.8 * gap[1])
    return recalls(f"with a modality gap, {count:,} of them", vectors, queries)


def recalls(name: str, vectors: Halves, queries: Singles) -> list[dict[str, Any]]:
    """What share of the best are among so many candidates chosen by signs."""
    right, codes = truth(vectors, queries)[0], codes_of(vectors)
    rows = []
    for candidates in (50, 100, 512, 1024, 2048, 4096, 8192):
        near = [nearest_codes(codes, code, candidates) for code in sign_codes(queries)]
        rows.append({"vectors": name, "candidates": candidates, "recall@20": round(recall(near, right), 4)})
    return rows


def the_store(vectors: Halves, queries: Singles, right: Longs, folder: Path) -> dict[str, Any]:
    """The store as users have it: filled, opened, asked, filtered, and some of it deleted."""
    shape, ids = Shape(vectors.shape[1]), np.arange(len(vectors))
    store = LocalStore.open(folder, shape, write=True)
    start = time.perf_counter()
    first = 0
    for some in blocks(vectors):
        store.add(ids[first : first + len(some)], Encoded(some, np.ones((len(some), 1), dtype=np.bool_)))
        first += len(some)
    store.flush()
    row: dict[str, Any] = {"vectors": len(vectors), "fill_seconds": round(time.perf_counter() - start, 2)}
    store.close()
    start = time.perf_counter()
    store = LocalStore.open(folder, shape, write=True)
    row["open_ms"] = round(1e3 * (time.perf_counter() - start), 1)
    start = time.perf_counter()
    store.search(queries[:1], TOP)
    row["first_search_ms"] = round(1e3 * (time.perf_counter() - start), 1)
    row["recall@20"] = round(recall(store.search(queries, TOP).ids, right), 4)
    few = queries[:30]
    row["ms"] = round(median_ms(lambda query: store.search(query[None], TOP).ids[0], queries), 2)
    for name, where in (("half", ids[::2]), ("thousand", ids[:: max(1, len(ids) // 1000)])):
        row[f"ms_of_{name}"] = round(median_ms(asking(store, where), few), 2)
    one = Encoded(vectors[:100].astype(np.float32), np.ones((100, 1), dtype=np.bool_))
    start = time.perf_counter()
    store.add(np.arange(100) + len(ids), one)
    store.flush()
    row["add_100_and_flush_ms"] = round(1e3 * (time.perf_counter() - start), 1)
    store.delete(ids[::10])
    row["ms_with_a_tenth_deleted"] = round(median_ms(asking(store, None), few), 2)
    row["megabytes"] = round(store.stats().bytes / 1e6, 1)
    row["index"] = store.stats().index
    store.close()
    return row | {"load_average": round(os.getloadavg()[0], 1)}


def asking(store: LocalStore, where: Longs | None) -> Ask:
    return lambda query: store.search(query[None], TOP, where).ids[0]


def fetching(folder: Path, items: int = 2_000, patches: int = 49, width: int = 128) -> float:
    """Milliseconds to fetch the fragments of 200 items out of 2,000."""
    rng = np.random.default_rng(0)
    store = LocalStore.open(folder, Shape(8, width), write=True)
    encoded = Encoded(
        rng.standard_normal((items, 8), dtype=np.float32),
        np.ones((items, patches), dtype=np.bool_),
        rng.standard_normal((items, patches, width), dtype=np.float32),
    )
    store.add(np.arange(items), encoded)
    took = []
    for _ in range(20):
        some = rng.choice(items, 200, replace=False)
        start = time.perf_counter()
        store.fetch(some, "fragments")
        took.append(time.perf_counter() - start)
    store.close()
    return round(float(np.median(took)) * 1e3, 2)


def everything(real: Real, sizes: tuple[int, ...], result: dict[str, Any], save: Callable[[], None]) -> None:
    """Fill in what is missing from the result, and save it after every measurement."""
    faiss.omp_set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not result["robustness"]:
            result["robustness"] = robustness(real, folder)
            result["fetch_200_ms"] = fetching(folder / "fragments")
            save()
        for size in sizes:
            if any(row["vectors"] == size for row in result["store"]):
                continue
            queries = real.captions[:: len(real.captions) // (200 if size < 10**6 else 60)]
            vectors = kept(real, size, folder / f"{size}")
            right = truth(vectors, queries)[0]
            there = {row["way"] for row in result["ways"] if row["vectors"] == size}
            for way in ways():
                if size <= way.up_to and way.name not in there:
                    result["ways"].append({"vectors": size, **measure(way, vectors, queries, right, folder)})
                    print(result["ways"][-1], flush=True)
                    save()
            result["store"].append(the_store(vectors, queries, right, folder / f"store-{size}"))
            print(result["store"][-1], flush=True)
            save()


def save_json(result: dict[str, Any], file: Path) -> None:
    file.write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--embeddings", type=Path, default=Path("embeddings.npz"))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--resume", action="store_true", help="keep the measurements that are there")
    parser.add_argument("--page", action="store_true", help="write the page from the results that are there")
    parser.add_argument("--json", type=Path, default=RESULTS / "index_choice.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"ways": [], "store": [], "robustness": [], "runs": []}
    if arguments.page or arguments.resume:
        result |= json.loads(arguments.json.read_text())
    if not arguments.page:
        vectors = real(arguments.embeddings, arguments.model)
        run = provenance(0, ["flickr8k-test"])
        result |= {"benchmark": "index_choice", **run, "faiss": faiss.__version__, "model": vectors.model}
        result["runs"] = [*result["runs"], {"command": run["command"], "commit": run["commit"]}]
        sizes = tuple(map(int, arguments.sizes.split(",")))
        save = partial(save_json, result, arguments.json)
        everything(vectors, sizes, result, save)


if __name__ == "__main__":
    main()
