"""Whether a search through Milvus finds what the local store finds, and how long each takes.

    python -m benchmarks.milvus --server 127.0.0.1:19530 --index hnsw

Needs SIGHTLINE_DATA, the bundled model and a Milvus server. The collection is made up as in `searching.py`. The same
items are kept twice: in a local store that compares every one exactly, and on the server. Real captions are asked with
a rerank of 20, one after the other and then by several threads at once.
"""

import argparse
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from benchmarks.searching import AT_ONCE, around, encoded_photos
from sightline.bundle import Bundle, Encoded
from sightline.datasets import read_all
from sightline.registry.loader import locate
from sightline.retrieval.cascade import Cascade
from sightline.retrieval.costs import Costs
from sightline.retrieval.plan import Plan
from sightline.retrieval.query import ask
from sightline.stores.base import Shape, Store
from sightline.stores.local import LocalStore
from sightline.stores.local_search import Effort
from sightline.stores.milvus import MilvusStore
from sightline.stores.milvus_address import parse_address

RERANK = 20
WARM = 5  # searches that are not counted, for they load graphs and pages
THREADS = 4


def filled(store: Store, photos: Encoded, count: int) -> float:
    """Add so many items, the same to every store; the seconds that it took."""
    rng, seconds = np.random.default_rng(0), 0.0
    for start in range(0, count, AT_ONCE):
        ids = np.arange(start, min(start + AT_ONCE, count))
        encoded = around(photos, len(ids), rng, bare=False)
        began = time.perf_counter()
        store.add(ids, encoded)
        store.flush()
        seconds += time.perf_counter() - began
        print(f"  {ids[-1] + 1:,} items in {seconds:.0f} s", flush=True)
    began = time.perf_counter()
    store.compact()
    return seconds + time.perf_counter() - began


def searched(store: Store, bundle: Bundle, captions: list[str]) -> tuple[list[list[int]], dict[str, float]]:
    """The ten best for every caption, and milliseconds and searches a second."""
    cascade = Cascade(bundle, store, "images", Costs(bundle.sha256))

    def search(caption: str) -> tuple[list[int], float, dict[str, float]]:
        began = time.perf_counter()
        ranking = cascade.run(ask(caption), Plan(10, rerank=RERANK))
        return ranking.candidates.ids[:10].tolist(), 1000 * (time.perf_counter() - began), ranking.took_ms

    for caption in captions[:WARM]:
        search(caption)
    answers = [search(caption) for caption in captions]
    walls = [wall for _, wall, _ in answers]
    numbers = {"p50_ms": median(walls), "p99_ms": float(np.percentile(walls, 99))}
    numbers |= {f"{stage}_p50_ms": median(took[stage] for _, _, took in answers) for stage in answers[0][2]}
    numbers["searches_per_second"] = 1000 * len(captions) / sum(walls)
    with ThreadPoolExecutor(THREADS) as pool:
        together = _seconds(lambda: list(pool.map(search, captions)))
    return [ids for ids, _, _ in answers], numbers | {
        f"searches_per_second_{THREADS}_threads": len(captions) / together
    }


def retrieved(store: Store, bundle: Bundle, captions: list[str]) -> float:
    """Milliseconds of the first stage alone, the 20 nearest of one question: the median."""
    vectors = bundle.encode_texts(captions).embedding
    return 1000 * median(_seconds(lambda row=row: store.search(vectors[row : row + 1], RERANK)) for row in range(50))  # type: ignore[misc]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:19530")
    parser.add_argument("--says", default="", help="what the server is, to be noted beside the numbers")
    parser.add_argument("--index", default="hnsw")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/milvus.json"))
    arguments = parser.parse_args()
    bundle = Bundle.open(locate("default"))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[: arguments.photos]
    captions = [caption for record in records for caption in record.captions_in("en")][: arguments.queries]
    photos = encoded_photos(bundle, records)
    assert photos.fragments is not None
    assert photos.states is not None
    shape = Shape(photos.embedding.shape[1], photos.fragments.shape[-1], photos.states.shape[-1])
    address = parse_address(f"milvus://{arguments.server}/bench_{secrets.token_hex(4)}?index={arguments.index}")
    folder = Path(tempfile.mkdtemp(prefix="sightline-milvus-"))
    rows: dict[str, dict[str, Any]] = {}
    found: dict[str, list[list[int]]] = {}
    try:
        stores: dict[str, Store] = {
            "local, exact": LocalStore.open(folder, shape, write=True, effort=Effort(exact_up_to=10**9)),
            f"milvus, {arguments.index}": MilvusStore.open(address, shape, write=True),
        }
        for name, store in stores.items():
            print(name, flush=True)
            load = os.getloadavg()[0]
            rows[name] = {"add_seconds": filled(store, photos, arguments.items), "load_before": load}
        for name, store in stores.items():
            rows[name]["load_while_searching"] = os.getloadavg()[0]
            found[name], numbers = searched(store, bundle, captions)
            rows[name] |= numbers | {"store_search_p50_ms": retrieved(store, bundle, captions)}
            print(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in rows[name].items()), flush=True)
    finally:
        shutil.rmtree(folder)
    local, remote = found.values()
    same = sum(one == other for one, other in zip(local, remote, strict=True)) / len(captions)
    as_sets = sum(set(one) == set(other) for one, other in zip(local, remote, strict=True)) / len(captions)
    print(f"the same ten in the same order for {same:.1%} of {len(captions)} queries, in any order for {as_sets:.1%}")
    result = {
        "experiment": "milvus",
        **provenance(0, ["flickr8k-test"]),
        "model": bundle.name,
        "server": arguments.says,
        "items": arguments.items,
        "queries": len(captions),
        "rerank": RERANK,
        "same_top_10": same,
        "same_top_10_in_any_order": as_sets,
        "rows": rows,
    }
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
