"""How many photos and texts a second are encoded, against sentence-transformers and a plain loop of transformers.

    python -m benchmarks.encoding
    python -m benchmarks.encoding --checkpoint runs/default/best --work runs/encoding --recall

Needs SIGHTLINE_DATA, a bundle (the bundled one) and, for the peers, `pip install 'sightline[train,bench]'`.

A photo is read from its file, decoded, sized and encoded; every way has all processors, a process of its own and, in
turns with the others, the same photos; medians count. Peers have towers of the same shape as the bundled model's, with
random weights, in float32 under torch. With a checkpoint, the model's graphs are also measured in float32 and in both
kinds of int8, under ONNX Runtime and, where it is installed, OpenVINO; how near each comes to float32 is a cosine of
their embeddings and, with --recall, the recall on Flickr8k test (minutes a graph; what is done is kept in --work).
Last, the stages that a photo goes through, on one processor, and those of a photo of 12 megapixels.
"""

import dataclasses
import json
import os
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

from benchmarks.encoders import AT_ONCE, IMAGE_TOWER, TEXT_TOWER, Engine, Kind, Singles, Task
from benchmarks.precisions import BLOCKS, FIXED, FLOAT32, bundles, recalled
from benchmarks.timing import in_turns, options, write
from sightline.bundle import Bundle
from sightline.datasets import Record, read_all
from sightline.media import ImageBytes, open_image, require_pixels
from sightline.media.pixels import framed_to_pixels, open_for_model
from sightline.parallel import usable_cpus
from sightline.registry.loader import locate

SHIPPED = "Sightline"
LOOP, PEER = "a plain transformers loop", "sentence-transformers"
PACKAGES: dict[Engine, tuple[str, ...]] = {
    "sightline": (),
    "openvino": ("openvino",),
    "transformers": ("torch", "transformers"),
    "sentence-transformers": ("sentence_transformers",),
}
LARGE = (4000, 3000)


class Worker:
    """A process that carries out a task as often as it is asked."""

    def __init__(self, task: Task) -> None:
        self.most = 0.0
        command = [sys.executable, "-m", "benchmarks.encoders"]
        self._process = subprocess.Popen(
            [*command, json.dumps(dataclasses.asdict(task))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self) -> float:
        """Carry it out; gives the seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise SystemExit(f"{self._process.args!r} ended by itself")
        found = json.loads(said)
        self.most = found["MB"]
        return float(found["seconds"])

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def tasks(kind: Kind, items: Path, shipped: Path, graphs: Mapping[str, Path]) -> dict[str, Task]:
    """Every way to encode these items, by its name."""
    shape = IMAGE_TOWER if kind == "images" else TEXT_TOWER

    def task(engine: Engine, bundle: Path = shipped, precision: str = "f32") -> Task:
        return Task(engine, kind, str(items), str(bundle), shape, precision)

    found = {SHIPPED: task("sightline")}
    found |= {f"ONNX Runtime, {name}": task("sightline", bundle) for name, bundle in graphs.items()}
    if kind == "images" and graphs:
        found |= {f"OpenVINO, {FLOAT32}": task("openvino", graphs[FLOAT32])}
        found |= {"OpenVINO, float16": task("openvino", graphs[FLOAT32], "f16")}
        found |= {f"OpenVINO, {name}": task("openvino", graphs[name], "f16") for name in (BLOCKS, FIXED)}
    return found | {PEER: task("sentence-transformers"), LOOP: task("transformers")}


def measure(kind: Kind, ways: Mapping[str, Task], rounds: int) -> list[dict[str, Any]]:
    """A row for each way: how many items a second, the most memory, and how near it comes to float32."""
    lacking = {name: [one for one in PACKAGES[task.engine] if find_spec(one) is None] for name, task in ways.items()}
    with tempfile.TemporaryDirectory(prefix="sightline-encoding-") as name:
        outs = {way: str(Path(name) / f"{number}.npy") for number, way in enumerate(ways) if not lacking[way]}
        workers = {way: Worker(dataclasses.replace(ways[way], out=out)) for way, out in outs.items()}
        seconds = in_turns(workers, rounds)
        for worker in workers.values():
            worker.close()
        found = {way: np.load(out) for way, out in outs.items()}
    rows: list[dict[str, Any]] = []
    for way, missing in lacking.items():
        row: dict[str, Any] = {"of": kind, "way": way}
        if missing:
            rows.append(row | {"missing": f"{', '.join(missing)} is not installed"})
            continue
        row |= {"per_second": len(found[way]) / median(seconds[way]), "MB": workers[way].most}
        if ways[way].engine in ("sightline", "openvino") and f"ONNX Runtime, {FLOAT32}" in found:
            row["cosine_to_float32"] = cosine(found[way], found[f"ONNX Runtime, {FLOAT32}"])
        rows.append(row)
    return rows


def cosine(some: Singles, right: Singles) -> dict[str, float]:
    """How near unit vectors [items, dim] come to those that are right."""
    found = (some * right).sum(1)
    return {"mean": float(found.mean()), "min": float(found.min())}


def stages(photos: Sequence[Path], bundle: Bundle) -> dict[str, float]:
    """Milliseconds that a photo spends in each stage, with one processor."""
    wanted = require_pixels(bundle.preprocess)
    names = ("read", "decode", "size and normalise", "encode")
    spent: list[list[float]] = []
    for photo in photos:
        clock = [time.perf_counter()]
        source = ImageBytes(photo.name, photo.read_bytes())
        clock.append(time.perf_counter())
        picture = open_for_model(source, wanted)
        clock.append(time.perf_counter())
        pixels = framed_to_pixels(picture, wanted)
        clock.append(time.perf_counter())
        bundle.encode_images(pixels[None])
        clock.append(time.perf_counter())
        spent.append([1000 * (after - before) for before, after in pairwise(clock)])
    return dict(zip(names, np.median(spent, axis=0).tolist(), strict=True))


def stage_rows(ordinary: Path, large: Path, bundle: Bundle) -> list[dict[str, Any]]:
    """The stages of ordinary photos and of large ones, and which of them takes longest."""
    bundle.prepare("image")
    rows: list[dict[str, Any]] = []
    for name, folder in (("ordinary", ordinary), ("12 megapixels", large)):
        found = stages(sorted(folder.glob("*.jpg")), bundle)
        rows.append({"of": "stages", "photos": name, "ms": found, "bottleneck": max(found, key=lambda one: found[one])})
    return rows


def write_photos(records: Sequence[Record], large: int, folder: Path) -> tuple[Path, Path]:
    """Photos as files in a folder and, of some of them, with 12 megapixels in another."""
    ordinary, enlarged = folder / "ordinary", folder / "large"
    ordinary.mkdir()
    enlarged.mkdir()
    for number, record in enumerate(records):
        picture = open_image(record.image)
        picture.save(ordinary / f"{number:04}.jpg", quality=90)
        if number < large:
            picture.resize(LARGE).save(enlarged / f"{number:04}.jpg", quality=90)
    return ordinary, enlarged


def write_captions(records: Sequence[Record], count: int, folder: Path) -> Path:
    """A file with so many captions, one on each line."""
    lines = [" ".join(text.split()) for record in records for text in record.captions_in("en")]
    path = folder / "captions.txt"
    path.write_text("\n".join(lines[:count]), encoding="utf-8")
    return path


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How many times as many items Sightline encodes as its peers, and other graphs as the one that ships."""
    found: dict[str, float] = {}
    for kind in ("images", "texts"):
        rates = {row["way"]: row["per_second"] for row in rows if row["of"] == kind and "per_second" in row}
        for peer in (PEER, LOOP):
            if peer in rates:
                found[f"{kind} a second, times {peer}"] = rates[SHIPPED] / rates[peer]
        for way, rate in rates.items():
            if way not in (SHIPPED, PEER, LOOP):
                found[f"{kind} a second of {way}, times the graph that ships"] = rate / rates[SHIPPED]
    for row in rows:
        if row["of"] == "stages":
            share = row["ms"]["encode"] / sum(row["ms"].values())
            found[f"share of the model in the time of a photo, {row['photos']}"] = share
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--model", default="default")
    parser.add_argument("--checkpoint", type=Path, help="the model in float32, to compare graphs of it")
    parser.add_argument("--work", type=Path, help="folder where graphs and recalls are kept")
    parser.add_argument("--recall", action="store_true", help="of every graph, too")
    arguments = parser.parse_args()
    if (arguments.checkpoint or arguments.recall) and not arguments.work:
        parser.error("--checkpoint and --recall need --work")
    data, shipped = os.environ["SIGHTLINE_DATA"], locate(arguments.model)
    share = usable_cpus() * (1 if arguments.quick else 4)  # batches, so that no processor is idle while others finish
    count, rounds = arguments.photos or share * AT_ONCE["images"], arguments.rounds or (1 if arguments.quick else 3)
    records = read_all([f"{data}/flickr8k-test.tar"])
    graphs: dict[str, Path] = {}
    if arguments.checkpoint:
        graphs = bundles(arguments.checkpoint, arguments.work, read_all([f"{data}/flickr8k-val.tar"]))
    with tempfile.TemporaryDirectory(prefix="sightline-photos-") as name:
        ordinary, large = write_photos(records[:count], max(1, count // 4), Path(name))
        captions = write_captions(records, 4 * share * AT_ONCE["texts"], Path(name))
        rows = measure("images", tasks("images", ordinary, shipped, graphs), rounds)
        rows += measure("texts", tasks("texts", captions, shipped, graphs), rounds)
        rows += stage_rows(ordinary, large, Bundle.open(shipped, threads=1))
    if arguments.recall:
        for way, folder in {SHIPPED: shipped, **graphs}.items():
            rows.append({"of": "recall", "way": way, **recalled(folder, arguments.work, records)})
    write("encoding", arguments, ["flickr8k-test"], rows, ratios(rows), photos=count)


if __name__ == "__main__":
    main()
