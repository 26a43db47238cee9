"""Time each stage at three data sizes, and fit the exponent with which its time grows.

    python -m benchmarks.growing

An exponent of 1 means linear time, 0 constant time. Collections are synthetic (see samples.py). When images are
indexed, the model runs only on the first batch: its time per image is constant, and would hide how the rest grows.
Ranking compares every caption with every image, so its size is the number of pairs. The best of a few rounds counts.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.timing import best, numbers, options, save, seconds_of
from sightline.bundle import Bundle, Encoded
from sightline.collection import Collection, index
from sightline.collection.vectors import VECTORS_FOLDER
from sightline.evaluation import ranks_from_embeddings
from sightline.media import blank
from sightline.stores.local import LocalStore

MATCHED, INTERACTED, ITEMS = (25, 50, 100), (100, 200, 400), 2_000
TEST_SETS = (500, 1_000, 2_000)
Timed = tuple[str, str, float, float]
"""A stage, what its data consist of, their size, and the seconds taken."""


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Fit the exponent with which time grows: the slope of the least-squares line through the logarithms."""
    if len(sizes) != len(seconds) or len(set(sizes)) < 2 or min(*sizes, *seconds) <= 0:
        raise ValueError(f"cannot fit a growth rate to sizes {list(sizes)} and times {list(seconds)}")
    return linear_regression(np.log(sizes).tolist(), np.log(seconds).tolist()).slope


def indexing(bundle: Bundle, sizes: Sequence[int], folder: Path) -> Iterator[Timed]:
    """Time indexing images, then indexing them again with nothing changed."""
    repeating: Any = samples.Repeating(bundle, np.repeat(blank(bundle.preprocess), 32, axis=0))
    for count in sizes:
        images, at = folder / f"images-{count}", folder / f"indexed-{count}"
        images.mkdir()
        samples.write_thumbnails(images, count)
        for stage in ("index", "index, nothing changed"):
            took = seconds_of(lambda images=images, at=at: index(images, at=at, model=repeating))  # type: ignore[misc]
            yield stage, "pictures", count, took


def searching(bundle: Bundle, photos: Encoded, sizes: Sequence[int], text: str, folder: Path) -> Iterator[Timed]:
    """Time opening a collection of embeddings, retrieving from it, and compacting it after deleting a tenth."""
    for count in sizes:
        at = folder / f"bare-{count}" / ".sightline"
        samples.make_collection(at, bundle, photos, count, bare=True)
        yield "open", "items", count, best(lambda at=at: Collection.open(at, bundle).close(), 5)  # type: ignore[misc]
        with Collection.open(at, bundle) as collection:
            took = [collection.search(text, k=20, rerank=0, duplicates="show").took_ms["retrieve"] for _ in range(12)]
        yield "retrieve", "items", count, min(took) / 1000
        store = LocalStore.open(at / VECTORS_FOLDER, samples.shape_of(photos, bare=True), write=True)
        store.delete(np.arange(1, count, 10))
        yield "compact", "items", count, seconds_of(store.compact)
        store.close()
        shutil.rmtree(at.parent)


def reranking(bundle: Bundle, photos: Encoded, text: str, folder: Path) -> Iterator[Timed]:
    """Time rescoring candidates by matching, and by late interaction."""
    at = folder / "whole" / ".sightline"
    samples.make_collection(at, bundle, photos, ITEMS)
    stages = {"match": ("rerank", MATCHED), "interact": ("late", INTERACTED)}
    with Collection.open(at, bundle) as collection:
        for stage, (option, counts) in stages.items():
            for count in counts:
                plan: dict[str, Any] = {"rerank": 0, "k": count, "duplicates": "show", option: count}
                took = [collection.search(text, **plan).took_ms[stage] for _ in range(4)]
                yield stage, "candidates", count, min(took) / 1000


def ranking(dim: int = 512) -> Iterator[Timed]:
    """Time ranking all captions and images of a test set by their embeddings."""
    rng = np.random.default_rng(0)
    for images in TEST_SETS:
        captions, image_of = 5 * images, np.repeat(np.arange(images), 5)
        vectors = samples.units(rng, captions, dim), samples.units(rng, images, dim), image_of
        seconds = best(lambda vectors=vectors: ranks_from_embeddings(*vectors), 3)  # type: ignore[misc]
        yield "rank a test set", "pairs", images * captions, seconds


def fitted(found: Sequence[Timed]) -> list[dict[str, Any]]:
    """Return a row for each stage, with its exponent."""
    rows = []
    for stage, of in dict.fromkeys((stage, of) for stage, of, _, _ in found):
        sizes, seconds = zip(*((size, took) for name, _, size, took in found if name == stage), strict=True)
        row = {"stage": stage, "of": of, "sizes": sizes, "seconds": seconds}
        rows.append(row | {"exponent": exponent(sizes, seconds)})
    return rows


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pictures", type=numbers, help="how many images are indexed")
    parser.add_argument("--items", type=numbers, help="how many items are searched")
    parser.add_argument("--photos", type=int, default=16, help="that collections are made of")
    arguments = parser.parse_args()
    images = arguments.pictures or ((500, 1_500, 4_500) if arguments.quick else (1_000, 5_000, 25_000))
    items = arguments.items or ((20_000, 60_000, 180_000) if arguments.quick else (100_000, 300_000, 1_000_000))
    bundle, records = samples.bundle(arguments.model), samples.records(arguments.photos)
    photos, text = samples.encode(bundle, records), samples.captions(records)[0]
    with tempfile.TemporaryDirectory(prefix="sightline-growing-") as name:
        folder = Path(name)
        found = list(indexing(bundle, images, folder))
        found += searching(bundle, photos, items, text, folder)
        found += reranking(bundle, photos, text, folder)
    found += ranking()
    rows = fitted(found)
    ratios = {f"exponent of {row['stage']}, in {row['of']}": row["exponent"] for row in rows}
    save("growing", arguments, ["random", samples.data()], rows, ratios, model=bundle.name)


if __name__ == "__main__":
    main()
