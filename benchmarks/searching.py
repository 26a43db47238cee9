"""How long a search takes: warm in one process, and cold from the prompt to the answer, on large made-up collections.

    python -m benchmarks.searching --sizes 10000,100000

Needs SIGHTLINE_DATA and a bundle (the bundled one). The collections hold vectors around those of real photos: mixed in
twos, with noise. Fragments and states are those of the photos. Queries are real captions. 1,000,000 items are made
without fragments and states, so their searches end with the first stage.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from sightline.bundle import Bundle, Encoded
from sightline.collection import Collection
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import Facts, PendingFile, Stamp
from sightline.collection.collection import VECTORS_FOLDER
from sightline.collection.manifest import FORMAT, Manifest, write_manifest
from sightline.datasets import Record, read_all
from sightline.media import load_pixels
from sightline.registry.loader import locate
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

BARE = 1_000_000  # from this size on, embeddings only
AT_ONCE = 5_000


def encoded_photos(bundle: Bundle, records: list[Record]) -> Encoded:
    pixels = [loaded.pixels for loaded in load_pixels([r.image for r in records], bundle.preprocess)]
    parts = [bundle.encode_images(p[None]) for p in pixels if p is not None]
    return Encoded(
        np.concatenate([part.embedding for part in parts]),
        np.concatenate([part.mask for part in parts]),
        np.concatenate([part.fragments for part in parts if part.fragments is not None]),
        np.concatenate([part.states for part in parts if part.states is not None]),
    )


def around(photos: Encoded, count: int, rng: np.random.Generator, bare: bool) -> Encoded:
    """Items around two photos each, leaning to the first, whose fragments and states they have."""
    first, second = rng.integers(0, len(photos), (2, count))
    share = rng.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
    vectors = share * photos.embedding[first] + (1 - share) * photos.embedding[second]
    vectors += rng.standard_normal(vectors.shape).astype(np.float32) * 0.3 / np.sqrt(vectors.shape[1])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if bare or photos.fragments is None or photos.states is None:
        return Encoded(vectors, np.zeros((count, 0), dtype=np.bool_))
    return Encoded(vectors, photos.mask[first], photos.fragments[first], photos.states[first])


def make(at: Path, bundle: Bundle, photos: Encoded, count: int, bare: bool = False) -> float:
    """Make a collection of so many items, bare ones of embeddings alone; the seconds that it took."""
    started = time.perf_counter()
    widths = (0, 0) if bare else tuple(0 if p is None else p.shape[-1] for p in (photos.fragments, photos.states))
    shape = Shape(photos.embedding.shape[1], *widths)
    at.mkdir(parents=True)
    write_manifest(at, Manifest(FORMAT, "images", bundle.name, bundle.sha256, shape))
    rng = np.random.default_rng(0)
    catalog, store = Catalog.open(at, write=True), LocalStore.open(at / VECTORS_FOLDER, shape, write=True)
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        facts = [Facts(hash=number.to_bytes(32, "big"), width=500, height=375) for number in numbers]
        with catalog.transaction():
            root = catalog.root(at.parent)
            ids = catalog.add_contents(facts)
            store.add(np.array(ids, dtype=np.int64), around(photos, len(ids), rng, bare))
            for number, id in zip(numbers, ids, strict=True):
                path = f"{number // 1000:04}/{number:07}.jpg"
                catalog.write(PendingFile(root, path.encode(), path, at.parent / path, Stamp(1, 1)), id)
        store.flush()
    store.close()
    catalog.close()
    return time.perf_counter() - started


def warm(at: Path, model: str, captions: list[str], rerank: int) -> dict[str, float]:
    """Milliseconds of searches in an open collection: the median and the 99th percentile, and those of each stage."""
    from sightline.registry.loader import load

    started = time.perf_counter()
    with Collection.open(at) as collection:
        opened = time.perf_counter() - started
        bundle = load(model)
        walls, stages = [], []
        for number, caption in enumerate(captions):
            began = time.perf_counter()
            result = collection.search(caption, k=20, rerank=rerank, model=bundle, duplicates="show")
            if number >= 3:  # the first load graphs and pages
                walls.append(1000 * (time.perf_counter() - began))
                stages.append(result.took_ms)
    found = {"open_ms": 1000 * opened, "p50_ms": median(walls), "p99_ms": float(np.percentile(walls, 99))}
    return found | {f"{stage}_p50_ms": median(took.get(stage, 0.0) for took in stages) for stage in stages[0]}


def command(at: Path, model: str, caption: str, rerank: int) -> list[str]:
    """A search as one would type it."""
    words = [str(Path(sys.executable).with_name("sightline")), "search", caption, "--at", str(at)]
    words += ["--rerank", str(rerank), "--duplicates", "show", "--json"]
    return words + (["--model", model] if model != "default" else [])


def cold(at: Path, model: str, caption: str, rerank: int, runs: int = 5) -> float:
    """Seconds from the prompt to the answer of a command of its own: the median."""
    walls = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        subprocess.run(command(at, model, caption, rerank), check=True, capture_output=True)
        walls.append(time.perf_counter() - started)
    return median(walls[1:])  # the first reads the disk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/searching.json"))
    arguments = parser.parse_args()
    bundle = Bundle.open(locate(arguments.model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[: arguments.photos]
    captions = [caption for record in records for caption in record.captions_in("en")][: arguments.queries]
    photos = encoded_photos(bundle, records)
    rows: list[dict[str, Any]] = []
    for size in map(int, arguments.sizes.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="sightline-searching-"))
        try:
            at = folder / ".sightline"
            row: dict[str, Any] = {"items": size, "make_seconds": make(at, bundle, photos, size, size >= BARE)}
            row["bytes"] = sum(path.stat().st_size for path in at.rglob("*") if path.is_file())
            for rerank in (0,) if size >= BARE else (0, 20):
                name = f"rerank {rerank}"
                row[name] = warm(at, arguments.model, captions, rerank)
                row[name]["cold_seconds"] = cold(at, arguments.model, captions[0], rerank)
                told = ", ".join(f"{key} {value:.2f}" for key, value in row[name].items())
                print(f"searching {size} items, {name}: {told}", flush=True)
            rows.append(row)
        finally:
            shutil.rmtree(folder)
    result = {"experiment": "searching", **provenance(0, ["flickr8k-test"]), "model": bundle.name, "rows": rows}
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
