"""Data for benchmarks: collections, and photos from Flickr8k's test set if SIGHTLINE_DATA has it, or synthetic ones."""

import dataclasses
import io
import os
import struct
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.arrays import Float32Array
from sightline.bundle import Bundle, Encoded
from sightline.bundle.encoded import stacked
from sightline.datasets import Record, read_all
from sightline.media import ImageBytes, load_pixels, open_image
from sightline.registry.loader import locate
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

SHARD, MADE_UP = "flickr8k-test", "made up"
WORDS = ("a", "the", "dog", "child", "man", "red", "ball", "beach", "snow", "water", "running", "with", "on", "two")
BATCH = 5_000  # items added to a collection at a time


def bundle(model: str) -> Bundle:
    """Open a bundle, given as in `sightline.load`."""
    return Bundle.open(locate(model))


def data() -> str:
    """Return the name of the data set that `records` returns photos from."""
    exists = Path(os.environ.get("SIGHTLINE_DATA", "nowhere"), f"{SHARD}.tar").is_file()
    return SHARD if exists else MADE_UP


def records(count: int, distinct: int | None = None) -> list[Record]:
    """Return `count` captioned photos, with distinct keys; photos repeat after `distinct`, or if there are too few."""
    if data() == MADE_UP:
        found = made_up(min(count, distinct or count))
    else:
        found = read_all([f"{os.environ['SIGHTLINE_DATA']}/{SHARD}.tar"])[:distinct]
    repeated = islice(cycle(found), count)
    return [dataclasses.replace(record, key=f"{number:05}") for number, record in enumerate(repeated)]


def made_up(count: int) -> list[Record]:
    """Make JPEGs of 500 x 375 pixels with as much detail as photos, each with five captions of 6 to 14 words."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375))
        noisy = np.asarray(coarse, dtype=np.float32) + rng.normal(0, 12, (375, 500, 3))
        file = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        captions = tuple(" ".join(rng.choice(WORDS, rng.integers(6, 15))) for _ in range(5))
        found.append(Record(f"{number:05}", ImageBytes(f"{number:05}.jpg", file.getvalue()), {"en": captions}))
    return found


def captions(records: list[Record]) -> list[str]:
    """Return the English captions of all records."""
    return [caption for record in records for caption in record.captions_in("en")]


def write_photos(
    records: list[Record],
    folder: Path,
    size: tuple[int, int] | None = None,
    thumbnail: tuple[int, int] | None = None,
) -> None:
    """Write photos as JPEG files; size: resize to this width and height, and add camera noise.

    thumbnail: also store an EXIF thumbnail of this width and height.
    """
    width, height = size or (0, 0)
    noise = np.random.default_rng(0).normal(0, 6, (height, width, 1)).astype(np.float32)
    for number, record in enumerate(records):
        photo = open_image(record.image)
        if size is not None:
            grainy = np.asarray(photo.convert("RGB").resize(size), dtype=np.float32) + noise
            photo = Image.fromarray(grainy.clip(0, 255).astype(np.uint8))
        path = folder / f"{number:04}.jpg"
        photo.save(path, quality=90)
        if thumbnail is not None:
            path.write_bytes(with_thumbnail(path.read_bytes(), thumbnail))


def with_thumbnail(photo: bytes, size: tuple[int, int]) -> bytes:
    """Store a thumbnail of this width and height in the EXIF data of a JPEG that has none, as phones do."""
    file = io.BytesIO()
    Image.open(io.BytesIO(photo)).resize(size, reducing_gap=2.0).save(file, "JPEG", quality=75)
    thumbnail = file.getvalue()
    no_details, start = struct.pack("<HL", 0, 14), 44
    place = struct.pack("<HHHLLHHLLL", 2, 0x0201, 4, 1, start, 0x0202, 4, 1, len(thumbnail), 0)
    exif = b"Exif\0\0II*\0\x08\0\0\0" + no_details + place + thumbnail
    return photo[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + photo[2:]


def write_thumbnails(folder: Path, count: int) -> None:
    """Write distinct JPEGs of 96 x 96, a thousand per folder."""
    rng = np.random.default_rng(0)
    for number in range(count):
        at = folder / f"{number // 1000:04}"
        at.mkdir(exist_ok=True)
        coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((96, 96)).save(at / f"{number:06}.jpg")


class Repeating:
    """A bundle that encodes the first batch of images, and returns copies of it for all others."""

    def __init__(self, bundle: Bundle, pixels: Any) -> None:
        self._bundle, self._first = bundle, bundle.encode_images(pixels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bundle, name)

    def with_threads(self, threads: int = 1) -> "Repeating":
        """Return this bundle unchanged."""
        return self

    prefer_gpu = with_threads

    def encode_images(self, pixels: Any) -> Encoded:
        """Return as many copies as there are images."""
        return self._first.taken(np.arange(len(pixels)))


def units(rng: np.random.Generator, *shape: int) -> Float32Array:
    """Random vectors of unit length."""
    return unit(rng.standard_normal(shape, dtype=np.float32))


def unit(vectors: Float32Array) -> Float32Array:
    """Normalise to unit length."""
    normal: Float32Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return normal


def encode(bundle: Bundle, records: list[Record]) -> Encoded:
    """Encode the photos of records."""
    pixels = [loaded.pixels for loaded in load_pixels([record.image for record in records], bundle.preprocess)]
    return stacked([bundle.encode_images(one[None]) for one in pixels if one is not None])


def around(photos: Encoded, count: int, rng: np.random.Generator, bare: bool) -> Encoded:
    """Make items, each between two photos, with noise and, unless `bare`, the first photo's fragments and states."""
    first, second = rng.integers(0, len(photos), (2, count))
    share = rng.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
    vectors = share * photos.embedding[first] + (1 - share) * photos.embedding[second]
    vectors += rng.standard_normal(vectors.shape).astype(np.float32) * 0.3 / np.sqrt(vectors.shape[1])
    vectors = unit(vectors)
    if bare:
        return Encoded(vectors, np.zeros((count, 0), dtype=np.bool_))
    return dataclasses.replace(photos.taken(first), embedding=vectors)


def shape_of(photos: Encoded, bare: bool = False) -> Shape:
    """Return the shape of a store for items made from these photos."""
    widths = (0, 0) if bare else tuple(0 if p is None else p.shape[-1] for p in (photos.fragments, photos.states))
    return Shape(photos.embedding.shape[1], *widths)


def fill(store: LocalStore, photos: Encoded, count: int, bare: bool = False) -> None:
    """Add `count` items with vectors near those of photos to a store."""
    rng = np.random.default_rng(0)
    for start in range(0, count, 10 * BATCH):
        ids = np.arange(start, min(start + 10 * BATCH, count))
        store.add(ids, around(photos, len(ids), rng, bare))
    store.flush()


def make_collection(at: Path, bundle: Bundle, photos: Encoded, count: int, bare: bool = False) -> float:
    """Make a collection of `count` items with vectors near those of photos, but no files; returns the seconds."""
    from sightline.collection.catalog.database import Catalog
    from sightline.collection.catalog.files import Facts, PendingFile, Stamp
    from sightline.collection.manifest import FORMAT, Manifest, write_manifest
    from sightline.collection.vectors import VECTORS_FOLDER

    started, shape, rng = time.perf_counter(), shape_of(photos, bare), np.random.default_rng(0)
    at.mkdir(parents=True)
    write_manifest(at, Manifest(FORMAT, "images", bundle.name, bundle.sha256, shape))
    catalog, store = Catalog.open(at, write=True), LocalStore.open(at / VECTORS_FOLDER, shape, write=True)
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        facts = [Facts(hash=number.to_bytes(32, "big"), width=500, height=375) for number in numbers]
        with catalog.transaction():
            root, ids = catalog.root(at.parent), catalog.add_contents(facts)
            store.add(np.array(ids, dtype=np.int64), around(photos, len(ids), rng, bare))
            for number, id in zip(numbers, ids, strict=True):
                path = f"{number // 1000:04}/{number:07}.jpg"
                catalog.write(PendingFile(root, path.encode(), path, at.parent / path, Stamp(1, 1)), id)
        store.flush()
    store.close()
    catalog.close()
    return time.perf_counter() - started
