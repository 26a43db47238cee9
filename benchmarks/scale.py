"""Measure what other benchmarks do not, for docs/scale.md: the time per query on one core, and the size of an item.

    python -m benchmarks.scale

One thread searches stores of embeddings, drawn around those of photos, for the embeddings of captions. CPU time is
measured, because machines are shared.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # must be set before numpy and faiss read it

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.timing import cpu_seconds_of, options, save
from sightline.bundle import Bundle, Encoded
from sightline.stores.local import LocalStore

SIZES = (100_000, 1_000_000)
K = 20


def service_times(photos: Encoded, queries: Any, items: int) -> dict[str, Any]:
    """Measure the CPU time of each query over this many items, in milliseconds, after a warm-up."""
    with tempfile.TemporaryDirectory(prefix="sightline-scale-") as folder:
        store = LocalStore.open(Path(folder), samples.shape_of(photos, bare=True), write=True)
        samples.fill(store, photos, items, bare=True)
        took = [1000 * cpu_seconds_of(partial(store.search, query[None], K)) for query in queries]
        store.close()
    return {"items": items, "processor_ms": took[len(queries) // 10 :]}


def collection(bundle: Bundle, photos: Encoded, items: int) -> dict[str, Any]:
    """Measure the time to write this many items with fragments and states, and their size in bytes."""
    with tempfile.TemporaryDirectory(prefix="sightline-scale-") as folder:
        at = Path(folder) / "photos" / ".sightline"
        seconds = samples.make_collection(at, bundle, photos, items)
        size = sum(path.stat().st_size for path in at.rglob("*") if path.is_file())
    return {"items": items, "make_seconds": seconds, "bytes": size}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, default=40)
    parser.add_argument("--queries", type=int, default=330)
    arguments = parser.parse_args()
    bundle, records = samples.bundle(arguments.model), samples.records(arguments.queries // 5 + 1)
    photos = samples.encode(bundle, records[: arguments.photos])
    captions = samples.captions(records)[: arguments.queries]
    queries = np.concatenate([bundle.encode_texts([caption]).embedding for caption in captions])
    services = [service_times(photos, queries, items) for items in SIZES]
    parts = {"fragments": photos.fragments, "states": photos.states}
    widths = {"embedding": [1, photos.embedding.shape[1]]}
    widths |= {name: list(part.shape[1:]) for name, part in parts.items() if part is not None}
    more = {"model": bundle.name, "widths": widths, "services": services}
    more["collection"] = collection(bundle, photos, SIZES[0])
    ratios = {f"CPU ms over {one['items']:,} items": float(np.median(one["processor_ms"])) for one in services}
    save("scale", arguments, [samples.data()], [], ratios, **more)


if __name__ == "__main__":
    main()
