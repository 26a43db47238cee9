"""How quickly a folder is indexed: against one thread, and against a plain loop of transformers and torch.

    python -m benchmarks.indexing --photos 64

Needs SIGHTLINE_DATA for the photos and a bundle (the bundled one). The loop runs an image tower of the same shape as
the bundled model's in float32, with pixels made by Pillow, in batches of eight: what a user would write instead.
Each way runs in a process of its own, one after the other, twice (once with --quick); the better time counts, without
loading the model.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.encoders import IMAGE_TOWER, Task, ready
from benchmarks.timing import options, write
from sightline.bundle import Bundle
from sightline.collection import index
from sightline.datasets import read_all
from sightline.media import open_image
from sightline.registry.loader import locate


def plain_loop(folder: Path, model: str) -> dict[str, float]:
    """Encode every photo with torch in float32; seconds, without loading the library and the tower."""
    way = ready(Task("transformers", "images", str(folder), str(locate(model)), IMAGE_TOWER))
    started = time.perf_counter()
    way()
    return {"seconds": time.perf_counter() - started}


def indexed(folder: Path, model: str) -> dict[str, float]:
    """Index the folder into a new collection; seconds without loading the model, and the process's most memory."""
    bundle = Bundle.open(locate(model), threads=1)
    bundle.prepare("image")
    with tempfile.TemporaryDirectory() as at:
        report = index(folder, at=at, model=bundle)
    return {"seconds": report.seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def write_photos(folder: Path, count: int) -> None:
    for number, record in enumerate(read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[:count]):
        open_image(record.image).save(folder / f"{number:04}.jpg", quality=90)


def in_a_process(what: str, folder: Path, model: str, cores: int) -> dict[str, float]:
    """Run one way in a process of its own, on so many cores."""
    command = [sys.executable, "-m", "benchmarks.indexing", "--way", what, "--folder", str(folder), "--model", model]
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores)}
    found = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
    )
    result: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return result


def best_of(rounds: int, folder: Path, model: str, cores: int) -> dict[str, Any]:
    """The quickest run of each way."""
    ways: dict[str, Any] = {}
    for _ in range(rounds):
        for label, what, threads in (("loop", "loop", cores), ("one core", "index", 1), ("index", "index", cores)):
            found = in_a_process(what, folder, model, threads)
            if label not in ways or found["seconds"] < ways[label]["seconds"]:
                ways[label] = found
    return ways


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int)
    parser.add_argument("--model", default="default")
    parser.add_argument("--way", choices=["loop", "index"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        run = plain_loop if arguments.way == "loop" else indexed
        print(json.dumps(run(arguments.folder, arguments.model)))
        return
    cores, photos = len(os.sched_getaffinity(0)), arguments.photos or (32 if arguments.quick else 64)
    with tempfile.TemporaryDirectory() as name:
        write_photos(Path(name), photos)
        ways = best_of(1 if arguments.quick else 2, Path(name), arguments.model, cores)
    for found in ways.values():
        found["photos_per_second"] = photos / found["seconds"]
    rate = ways["index"]["photos_per_second"]
    ratios = {
        "photos a second, times a plain transformers loop": rate / ways["loop"]["photos_per_second"],
        "photos a second, times one core": rate / ways["one core"]["photos_per_second"],
    }
    rows = [{"way": label, **found} for label, found in ways.items()]
    write("indexing", arguments, ["flickr8k-test"], rows, ratios, photos=photos, cores=cores, ways=ways)


if __name__ == "__main__":
    main()
