"""Measure photos and texts encoded per second, compared with sentence-transformers and a plain transformers loop.

    python -m benchmarks.encoding

For the alternatives: `pip install 'sightline-search[train,bench]'`. A photo is read from its file, decoded, resized and
encoded. Each engine runs in its own process with all cores; they take turns over the same photos, and medians are
reported. The alternatives have towers of the bundled model's shape with random weights, in float32 in torch. Then the
stages of encoding a photo are timed on one core, for ordinary photos and for photos of 12 megapixels.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.encoders import BATCH, IMAGE_TOWER, TEXT_TOWER, Engine, Kind, Task
from benchmarks.timing import in_turns, options, save
from sightline.bundle import Bundle
from sightline.media import ImageBytes, require_pixels
from sightline.media.pixels import framed_to_pixels, open_for_model
from sightline.parallel import usable_cpus
from sightline.registry.loader import locate

OURS, PEER, LOOP = "Sightline", "sentence-transformers", "a plain transformers loop"
ENGINES: dict[str, Engine] = {OURS: "sightline", PEER: "sentence-transformers", LOOP: "transformers"}
PACKAGES = {OURS: "sightline", PEER: "sentence_transformers", LOOP: "transformers"}
LARGE = (4000, 3000)


class Worker:
    """A process that runs a task each time it is called, and returns how many seconds it took."""

    def __init__(self, task: Task) -> None:
        self.peak_mb = 0.0
        command = [sys.executable, "-m", "benchmarks.encoders", json.dumps(dataclasses.asdict(task))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> float:
        """Run the task."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended early")
        found = json.loads(line)
        self.peak_mb = found["MB"]
        return float(found["seconds"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measure(kind: Kind, items: Path, count: int, bundle: Path, rounds: int) -> list[dict[str, Any]]:
    """Items per second and peak memory of each engine; an engine that is not installed is reported as such."""
    shape = IMAGE_TOWER if kind == "images" else TEXT_TOWER
    there = [name for name in ENGINES if find_spec(PACKAGES[name]) is not None]
    workers = {name: Worker(Task(ENGINES[name], kind, str(items), str(bundle), shape)) for name in there}
    seconds = in_turns(workers, rounds)
    rows: list[dict[str, Any]] = []
    for name in ENGINES:
        if name in workers:
            workers[name].close()
            found: dict[str, Any] = {"per_second": count / median(seconds[name]), "MB": workers[name].peak_mb}
        else:
            found = {"missing": f"{PACKAGES[name]} is not installed"}
        rows.append({"of": kind, "way": name, **found})
    return rows


def stages(photos: Sequence[Path], bundle: Bundle) -> dict[str, float]:
    """How many milliseconds each stage of encoding a photo takes, on one core."""
    wanted, spent = require_pixels(bundle.preprocess), []
    for photo in photos:
        clock = [time.perf_counter()]
        source = ImageBytes(photo.name, photo.read_bytes())
        clock.append(time.perf_counter())
        image = open_for_model(source, wanted)
        clock.append(time.perf_counter())
        pixels = framed_to_pixels(image, wanted)
        clock.append(time.perf_counter())
        bundle.encode_images(pixels[None])
        clock.append(time.perf_counter())
        spent.append([1000 * (after - before) for before, after in pairwise(clock)])
    names = ("read", "decode", "size and normalise", "encode")
    return dict(zip(names, np.median(spent, axis=0).tolist(), strict=True))


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Sightline's speed relative to the others, and the fraction of the time per photo that the model takes."""
    rates = {(row["of"], row["way"]): row["per_second"] for row in rows if "per_second" in row}
    found = {
        f"{kind} a second, times {way}": rates[kind, OURS] / rate for (kind, way), rate in rates.items() if way != OURS
    }
    for row in rows:
        if row["of"] == "stages":
            share = row["ms"]["encode"] / sum(row["ms"].values())
            found[f"share of the model in the time of a photo, {row['photos']}"] = share
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    share = usable_cpus() * (1 if arguments.quick else 4)  # batches per core
    count, rounds = arguments.photos or share * BATCH["images"], arguments.rounds or (1 if arguments.quick else 3)
    records = samples.records(max(count, 1 + 4 * share * BATCH["texts"] // 5), distinct=1000)
    texts = samples.captions(records)[: 4 * share * BATCH["texts"]]
    with tempfile.TemporaryDirectory(prefix="sightline-photos-") as name:
        ordinary, large, captions = (Path(name) / part for part in ("ordinary", "large", "captions.txt"))
        samples.write_photos(records[:count], ordinary)
        samples.write_photos(records[: max(1, count // 4)], large, LARGE)
        captions.write_text("\n".join(" ".join(text.split()) for text in texts), encoding="utf-8")
        rows = measure("images", ordinary, count, locate(arguments.model), rounds)
        rows += measure("texts", captions, len(texts), locate(arguments.model), rounds)
        bundle = Bundle.open(locate(arguments.model), threads=1)
        bundle.prepare("image")
        for photos, folder in (("ordinary", ordinary), ("12 megapixels", large)):
            rows.append({"of": "stages", "photos": photos, "ms": stages(sorted(folder.glob("*.jpg")), bundle)})
    save("encoding", arguments, [samples.data()], rows, ratios(rows), photos=count)


if __name__ == "__main__":
    main()
