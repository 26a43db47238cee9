"""What docs/scale.md needs that no other benchmark measures: service times of one core, and what fan-out makes of them.

    python -m benchmarks.scale

Needs SIGHTLINE_DATA and a
bundle (the bundled one). Stores of embeddings around those of real photos are asked, by one thread, for the embeddings
of real captions: as wall-clock time and as processor time, because machines are shared.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and faiss read it

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fan_out import Cluster, latencies, summary
from benchmarks.provenance import RESULTS, provenance, write_result
from benchmarks.searching import around, encoded_photos
from sightline.bundle import Bundle, Encoded
from sightline.datasets import read_all
from sightline.registry.loader import locate
from sightline.stores.base import Shape, Singles
from sightline.stores.local import LocalStore

SIZES = (100_000, 1_000_000)
AT_ONCE = 50_000
SHARDS = (1, 10, 100, 1000)
LOADS = (0.3, 0.5, 0.7)
SIMULATED = 10_000
K = 20


def service_times(photos: Encoded, questions: Singles, items: int) -> dict[str, Any]:
    """Milliseconds that one core works on each question over so many items, after a few to warm up."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="sightline-scale-") as folder:
        store = LocalStore.open(Path(folder), Shape(photos.embedding.shape[1]), write=True)
        for start in range(0, items, AT_ONCE):
            store.add(np.arange(start, start + AT_ONCE), around(photos, AT_ONCE, rng, bare=True))
        store.flush()
        wall, processor = [], []
        for question in questions:
            began, worked = time.perf_counter(), time.process_time()
            store.search(question[None], K)
            processor.append(round(1000 * (time.process_time() - worked), 3))
            wall.append(round(1000 * (time.perf_counter() - began), 3))
        store.close()
    warm = len(questions) // 10
    return {"items": items, "wall_ms": wall[warm:], "processor_ms": processor[warm:]}


def simulated(service: dict[str, Any]) -> list[dict[str, Any]]:
    """What a query over many shards of this kind takes, for each number of shards, load and number of copies."""
    rows = []
    for clock in ("processor_ms", "wall_ms"):
        times = np.array(service[clock])
        for shards in SHARDS:
            for load in LOADS:
                for copies in (1, 2):
                    took = latencies(Cluster(shards, copies, load), times, SIMULATED)
                    rows.append({"clock": clock, "shards": shards, "load": load, "copies": copies, **summary(took)})
    return rows


def measure(model: str, photos: int, queries: int) -> dict[str, Any]:
    bundle = Bundle.open(locate(model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])
    seen = encoded_photos(bundle, records[:photos])
    captions = [caption for record in records for caption in record.captions_in("en")][:queries]
    questions = np.concatenate([bundle.encode_texts([caption]).embedding for caption in captions])
    services = [service_times(seen, questions, items) for items in SIZES]
    assert seen.fragments is not None
    assert seen.states is not None
    return {
        "experiment": "scale",
        **provenance(0, ["flickr8k-test"]),
        "load_average": os.getloadavg()[0],
        "model": bundle.name,
        "widths": {
            "embedding": [1, seen.embedding.shape[1]],
            "fragments": list(seen.fragments.shape[1:]),
            "states": list(seen.states.shape[1:]),
        },
        "services": services,
        "simulated_queries": SIMULATED,
        "simulation": simulated(services[-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--photos", type=int, default=40)
    parser.add_argument("--queries", type=int, default=330)
    arguments = parser.parse_args()
    result = measure(arguments.model, arguments.photos, arguments.queries)
    write_result(RESULTS / "scale.json", result)
    for service in result["services"]:
        p50, p99 = np.percentile(service["processor_ms"], (50, 99))
        print(f"scale: {service['items']:,} items, {p50:.2f} ms of one core, p99 {p99:.2f} ms")


if __name__ == "__main__":
    main()
