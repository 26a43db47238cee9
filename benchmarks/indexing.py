"""Measure the speed of indexing a folder: with all cores, with one core, and with a plain transformers loop in torch.

    python -m benchmarks.indexing --photos 64

The loop is what you would write yourself: an image tower of the bundled model's shape, in float32 in torch, with pixels
from Pillow, in batches of eight. Each runs in its own process, in turns, twice (once with --quick). The best time
counts, not including the time to load the model.
"""

import argparse
import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.baseline import IMAGE_TOWER, ImageLoop
from benchmarks.timing import in_a_process, options, save, seconds_of
from sightline.bundle import Bundle
from sightline.collection import index
from sightline.registry.loader import locate


def loop(folder: Path) -> dict[str, float]:
    """Encode every photo with torch in float32."""
    baseline = ImageLoop(IMAGE_TOWER)
    return {"seconds": seconds_of(lambda: baseline.encode(folder))}


def indexed(folder: Path, model: str) -> dict[str, float]:
    """Index the folder into a new collection; returns the seconds taken, and the peak memory of this process."""
    bundle = Bundle.open(locate(model), threads=1)
    bundle.prepare("image")
    with tempfile.TemporaryDirectory() as at:
        report = index(folder, at=at, model=bundle)
    return {"seconds": report.seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def best_of(rounds: int, folder: Path, model: str, cores: int) -> dict[str, Any]:
    """The fastest run of each alternative."""
    ways: dict[str, Any] = {}
    for _ in range(rounds):
        for label, way, threads in (("loop", "loop", cores), ("one core", "index", 1), ("index", "index", cores)):
            words = ["--way", way, "--folder", str(folder), "--model", model]
            found = in_a_process("benchmarks.indexing", *words, cores=threads)
            if label not in ways or found["seconds"] < ways[label]["seconds"]:
                ways[label] = found
    return ways


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int)
    parser.add_argument("--way", choices=["loop", "index"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        folder, model = arguments.folder, arguments.model
        print(json.dumps(loop(folder) if arguments.way == "loop" else indexed(folder, model)))
        return
    cores, photos = len(os.sched_getaffinity(0)), arguments.photos or (32 if arguments.quick else 64)
    with tempfile.TemporaryDirectory() as name:
        samples.write_photos(samples.records(photos), Path(name))
        ways = best_of(1 if arguments.quick else 2, Path(name), arguments.model, cores)
    for found in ways.values():
        found["photos_per_second"] = photos / found["seconds"]
    rate = ways["index"]["photos_per_second"]
    ratios = {
        "photos a second, times a plain transformers loop": rate / ways["loop"]["photos_per_second"],
        "photos a second, times one core": rate / ways["one core"]["photos_per_second"],
    }
    rows = [{"way": label, **found} for label, found in ways.items()]
    save("indexing", arguments, [samples.data()], rows, ratios, photos=photos, cores=cores, ways=ways)


if __name__ == "__main__":
    main()
