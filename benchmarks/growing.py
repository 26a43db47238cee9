"""How the time of each stage grows with its data: three sizes each, and the exponent that fits them.

    python -m benchmarks.growing

Needs SIGHTLINE_DATA and a bundle (the bundled one). An exponent of 1 is time in proportion to the data, 0 is time that
does not depend on it. Collections are made up (see searching.py). Pictures are indexed with most of the model's work
left out (see memory.py): that is the same for every picture, and would hide how the rest grows. Ranking a test set
compares every caption with every image, so its data are pairs of these. The best of a few rounds counts.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evaluation import unit
from benchmarks.growth import exponent
from benchmarks.memory import Repeating, write_pictures
from benchmarks.searching import encoded_photos, make
from benchmarks.timing import best, options, write
from sightline.bundle import Bundle, Encoded
from sightline.collection import Collection, index
from sightline.collection.collection import VECTORS_FOLDER
from sightline.datasets import read_all
from sightline.evaluation import ranks_from_embeddings
from sightline.media import blank
from sightline.registry.loader import locate
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

MATCHED, INTERACTED, KEPT = (25, 50, 100), (100, 200, 400), 2_000
TEST_SETS = (500, 1_000, 2_000)
Timed = tuple[str, str, float, float]
"""A stage, what its data are, how many of them, and seconds."""


def indexing(bundle: Bundle, sizes: Sequence[int], folder: Path) -> Iterator[Timed]:
    """Index pictures; then again, when nothing has changed."""
    repeating: Any = Repeating(bundle)
    repeating.encode_images(np.repeat(blank(bundle.preprocess), 32, axis=0))
    for count in sizes:
        pictures, at = folder / f"pictures-{count}", folder / f"indexed-{count}"
        pictures.mkdir()
        write_pictures(pictures, count)
        for stage in ("index", "index, nothing changed"):
            began = time.perf_counter()
            index(pictures, at=at, model=repeating)
            yield stage, "pictures", count, time.perf_counter() - began


def searching(bundle: Bundle, photos: Encoded, sizes: Sequence[int], text: str, folder: Path) -> Iterator[Timed]:
    """Open a collection of embeddings, retrieve from it, and give back the space of a tenth of its items."""
    for count in sizes:
        at = folder / f"bare-{count}" / ".sightline"
        make(at, bundle, photos, count, bare=True)
        yield "open", "items", count, best(lambda at=at: Collection.open(at, bundle).close(), 5)  # type: ignore[misc]
        with Collection.open(at, bundle) as collection:
            took = [collection.search(text, k=20, rerank=0, duplicates="show").took_ms["retrieve"] for _ in range(12)]
        yield "retrieve", "items", count, min(took) / 1000
        store = LocalStore.open(at / VECTORS_FOLDER, Shape(photos.embedding.shape[1]), write=True)
        store.delete(np.arange(1, count, 10))
        began = time.perf_counter()
        store.compact()
        yield "compact", "items", count, time.perf_counter() - began
        store.close()
        shutil.rmtree(at.parent)


def reranking(bundle: Bundle, photos: Encoded, text: str, folder: Path) -> Iterator[Timed]:
    """Match candidates, and rescore them by late interaction."""
    at = folder / "whole" / ".sightline"
    make(at, bundle, photos, KEPT)
    stages = {"match": ("rerank", MATCHED), "interact": ("late", INTERACTED)}
    with Collection.open(at, bundle) as collection:
        for stage, (option, counts) in stages.items():
            for count in counts:
                plan: dict[str, Any] = {"rerank": 0, "k": count, "duplicates": "show", option: count}
                took = [collection.search(text, **plan).took_ms[stage] for _ in range(4)]
                yield stage, "candidates", count, min(took) / 1000


def ranking(dim: int = 512) -> Iterator[Timed]:
    """Rank all captions and images of a test set by their embeddings."""
    for images in TEST_SETS:
        captions = 5 * images
        texts, pictures, image_of = unit(captions, dim, 0), unit(images, dim, 1), np.repeat(np.arange(images), 5)
        seconds = best(lambda t=texts, p=pictures, i=image_of: ranks_from_embeddings(t, p, i), 3)  # type: ignore[misc]
        yield "rank a test set", "pairs", images * captions, seconds


def fitted(found: Sequence[Timed]) -> list[dict[str, Any]]:
    """A row for each stage, with its exponent."""
    rows = []
    for stage, of in dict.fromkeys((stage, of) for stage, of, _, _ in found):
        sizes, seconds = zip(*((size, took) for name, _, size, took in found if name == stage), strict=True)
        row = {"stage": stage, "of": of, "sizes": sizes, "seconds": seconds}
        rows.append(row | {"exponent": exponent(sizes, seconds)})
    return rows


def sizes_of(arguments: argparse.Namespace) -> tuple[Sequence[int], Sequence[int]]:
    """How many pictures are indexed, and how many items are searched."""
    pictures = (500, 1_500, 4_500) if arguments.quick else (1_000, 5_000, 25_000)
    items = (20_000, 60_000, 180_000) if arguments.quick else (100_000, 300_000, 1_000_000)
    return arguments.pictures or pictures, arguments.items or items


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = options(__doc__)
    parser.add_argument("--pictures", type=numbers)
    parser.add_argument("--items", type=numbers)
    parser.add_argument("--photos", type=int, default=16, help="that collections are made of")
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    bundle = Bundle.open(locate(arguments.model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[: arguments.photos]
    photos, text = encoded_photos(bundle, records), records[0].captions_in("en")[0]
    pictures, items = sizes_of(arguments)
    with tempfile.TemporaryDirectory(prefix="sightline-growing-") as name:
        folder = Path(name)
        found = list(indexing(bundle, pictures, folder))
        found += searching(bundle, photos, items, text, folder)
        found += reranking(bundle, photos, text, folder)
    found += ranking()
    rows = fitted(found)
    ratios = {f"exponent of {row['stage']}, in {row['of']}": row["exponent"] for row in rows}
    write("growing", arguments, ["made up", "flickr8k-test"], rows, ratios, model=bundle.name)


if __name__ == "__main__":
    main()
