"""How long a search takes on large collections: in an open process (warm), and as a command (cold).

    python -m benchmarks.searching --sizes 10000,100000

Items lie between the vectors of photos, with noise, and have their fragments and states (see samples.py). Collections
of 1,000,000 items have embeddings only, so their searches end with the first stage.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import samples
from benchmarks.timing import numbers, options, percentiles, save, seconds_of
from sightline.bundle import Bundle
from sightline.collection import Collection
from sightline.registry.loader import load, locate

BARE = 1_000_000  # from this size on, embeddings only
WARM_UP = 3


def warm(at: Path, model: str, captions: list[str], rerank: int) -> dict[str, float]:
    """Milliseconds of searches in an open collection, and of each stage."""
    started = time.perf_counter()
    with Collection.open(at) as collection:
        opened = 1000 * (time.perf_counter() - started)
        bundle, walls, stages = load(model), [], []
        for caption in captions:
            began = time.perf_counter()
            result = collection.search(caption, k=20, rerank=rerank, model=bundle, duplicates="show")
            walls.append(1000 * (time.perf_counter() - began))
            stages.append(result.took_ms)
    found = {"open_ms": opened} | percentiles(walls[WARM_UP:])
    return found | {f"{stage}_p50_ms": median(took.get(stage, 0.0) for took in stages) for stage in stages[0]}


def command(at: Path, model: str, caption: str, rerank: int) -> list[str]:
    """The command line of a search."""
    words = [str(Path(sys.executable).with_name("sightline")), "search", caption, "--at", str(at)]
    words += ["--rerank", str(rerank), "--duplicates", "show", "--json"]
    return words + (["--model", model] if model != "default" else [])


def cold(at: Path, model: str, caption: str, rerank: int, runs: int = 5) -> float:
    """Median seconds of the command; the first run reads the disk and does not count."""
    words = command(at, model, caption, rerank)
    walls = [seconds_of(lambda: subprocess.run(words, check=True, capture_output=True)) for _ in range(runs + 1)]
    return median(walls[1:])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", type=numbers, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--queries", type=int, default=60)
    arguments = parser.parse_args()
    bundle, records = Bundle.open(locate(arguments.model)), samples.records(arguments.photos)
    captions, photos = samples.captions(records)[: arguments.queries], samples.encode(bundle, records)
    rows: list[dict[str, Any]] = []
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(prefix="sightline-searching-") as folder:
            at = Path(folder) / "photos" / ".sightline"
            row: dict[str, Any] = {"items": size}
            row["make_seconds"] = samples.make_collection(at, bundle, photos, size, size >= BARE)
            row["bytes"] = sum(path.stat().st_size for path in at.rglob("*") if path.is_file())
            for rerank in (0,) if size >= BARE else (0, 20):
                row[f"rerank {rerank}"] = warm(at, arguments.model, captions, rerank)
                row[f"rerank {rerank}"]["cold_seconds"] = cold(at, arguments.model, captions[0], rerank)
            rows.append(row)
            print(row, flush=True)
    save("searching", arguments, [samples.data()], rows, {}, model=bundle.name)


if __name__ == "__main__":
    main()
