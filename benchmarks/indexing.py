"""Measure the speed of indexing a folder: with all cores, with one core, and with a plain transformers loop in torch.

    python -m benchmarks.indexing --photos 64

The loop is what you would write yourself: an image tower of the bundled model's shape, in float32 in torch, with pixels
from Pillow, in batches of eight. rclip's method is the same loop with a smaller tower, CLIP ViT-B/32; this method and
`index --quick` are measured on photos of 0.5 and 12 megapixels, the latter with and without an EXIF thumbnail. All take
turns, each in its own process. The best time counts, excluding the time to load the model and to start.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.baseline import IMAGE_TOWER, RCLIP_TOWER, ImageLoop
from benchmarks.timing import in_a_process, options, save, seconds_of
from sightline.bundle import Bundle
from sightline.collection import index
from sightline.registry.loader import locate

TOWERS = {"loop": IMAGE_TOWER, "rclip": RCLIP_TOWER}
Size = tuple[int, int]
_FIRST = 8  # photos before those that are measured
PHOTOS: Mapping[str, tuple[Size, Size | None]] = {
    "0.5 megapixels": ((816, 612), None),
    "12 megapixels": ((4000, 3000), None),
    "12 megapixels with a thumbnail": ((4000, 3000), (512, 384)),
}
"""Width and height of photos and of their EXIF thumbnails; many phones write thumbnails of this size."""


def measured(way: str, folder: Path, model: str) -> dict[str, float]:
    """Encode all photos with torch in float32, or index them into a new collection; returns the seconds taken.

    A few photos come first, unmeasured, so that starting does not count: it would for 96 photos, not for thousands.
    """
    if way in TOWERS:
        encode = ImageLoop(TOWERS[way]).encode
        with some_of(folder) as few:
            encode(few)
        return {"seconds": seconds_of(partial(encode, folder))}
    quick, bundle = way == "quick", Bundle.open(locate(model), threads=1)
    (bundle.fast_variant() or bundle if quick else bundle).prepare("image", wait=True)
    with some_of(folder) as few, tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as at:
        index(few, at=first, model=bundle, quick=quick)
        return {"seconds": index(folder, at=at, model=bundle, quick=quick).seconds}


@contextmanager
def some_of(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder with copies of a few of the photos."""
    with tempfile.TemporaryDirectory() as name:
        for photo in sorted(folder.iterdir())[:_FIRST]:
            shutil.copy(photo, name)
        yield Path(name)


def best_of(rounds: int, folder: Path, model: str, ways: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """Return the fastest run of each alternative; ways: what to run, and on how many cores, by label."""
    best: dict[str, Any] = {}
    photos = len(list(folder.iterdir()))
    for _ in range(rounds):
        for label, (way, cores) in ways.items():
            words = ["--way", way, "--folder", str(folder), "--model", model]
            found = in_a_process("benchmarks.indexing", *words, cores=cores)
            if label not in best or found["seconds"] < best[label]["seconds"]:
                best[label] = {**found, "photos_per_second": photos / found["seconds"]}
    return best


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int)
    parser.add_argument("--way", choices=[*TOWERS, "index", "quick"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder, model, way = arguments.folder, arguments.model, arguments.way
    if way:
        print(json.dumps(measured(way, folder, model)))
        return
    cores, photos = len(os.sched_getaffinity(0)), arguments.photos or (32 if arguments.quick else 64)
    with tempfile.TemporaryDirectory() as name:
        samples.write_photos(samples.records(photos), Path(name))
        alternatives = {"loop": ("loop", cores), "one core": ("index", 1), "index": ("index", cores)}
        ways = best_of(1 if arguments.quick else 2, Path(name), model, alternatives)
    rows: list[dict[str, Any]] = [{"way": label, **found} for label, found in ways.items()]
    rate = {label: found["photos_per_second"] for label, found in ways.items()}
    ratios = {
        "photos a second, times a plain transformers loop": rate["index"] / rate["loop"],
        "photos a second, times one core": rate["index"] / rate["one core"],
    }
    for kind, (size, thumbnail) in () if arguments.quick else PHOTOS.items():
        with tempfile.TemporaryDirectory() as name:
            samples.write_photos(samples.records(2 * photos), Path(name), size, thumbnail)
            each = {way: (way, cores) for way in ("loop", "rclip", "index", "quick")}
            found = best_of(1, Path(name), model, each)
        rows += [{"way": label, "photos": kind, **one} for label, one in found.items()]
        faster = found["quick"]["photos_per_second"] / found["index"]["photos_per_second"]
        ratios[f"photos a second of --quick at {kind}, times without"] = faster
    save("indexing", arguments, [samples.data()], rows, ratios, photos=photos, cores=cores, ways=ways)


if __name__ == "__main__":
    main()
