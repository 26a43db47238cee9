"""A store of region features: memory-mapped, independent of the format they were published in.

A folder with `regions.json` (a description of its contents), `features.bin` [regions, dim], `boxes.bin` [regions, 4] in
float32, if there are boxes, and `images.jsonl`: a line per image with its name, its regions (index of the first, and
count), its captions and its split. A store is a data set like any other: you can train on it, evaluate on it and index
it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from sightline import settings
from sightline.datasets.fields import captions_of, file_name, json_object, shown
from sightline.datasets.files import numbered_lines
from sightline.datasets.record import BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.regions.detections import Floats
from sightline.errors import DataError, MediaError
from sightline.media.regions import CORNERS, region_bytes

FORMAT = 1
SPEC_FILE, FEATURES_FILE, BOXES_FILE, IMAGES_FILE = "regions.json", "features.bin", "boxes.bin", "images.jsonl"


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The contents of `regions.json`: the number of images and regions, and the shape and type of the regions."""

    format: int
    images: int
    regions: int
    feature_dim: int
    dtype: Literal["float16", "float32"]
    boxes: bool


class RegionStore:
    """An open store: features [regions, dim] and boxes [regions, 4] of all images, one after the other."""

    def __init__(self, folder: Path, spec: StoreSpec) -> None:
        self.folder, self.spec = folder, spec
        self.features = _mapped(folder / FEATURES_FILE, spec.dtype, (spec.regions, spec.feature_dim))
        self.boxes = _mapped(folder / BOXES_FILE, "float32", (spec.regions, CORNERS)) if spec.boxes else None

    @classmethod
    def open(cls, folder: str | Path) -> "RegionStore":
        """Open a store's folder and check the sizes of its files."""
        folder = Path(folder)
        try:
            spec = settings.read(StoreSpec, folder / SPEC_FILE, "region store", FORMAT, DataError, "Create it again.")
        except FileNotFoundError as error:
            raise DataError(f"{folder} is not a region store: it has no {SPEC_FILE}") from error
        return cls(folder, spec)

    def records(self, report: OnProblem) -> Iterator[Record]:
        """Yield every image, in store order; broken lines are reported and skipped."""
        path = self.folder / IMAGES_FILE
        for number, line in numbered_lines(path):
            place = f"{path}:{number}"
            try:
                fields = json_object(line)
                name = file_name(fields.get("image"), "'image'")
                image = RegionSlice(self.folder, name, *self._span(fields.get("regions")))
                captions = captions_of(fields, place, report) or {}
                split = fields.get("split")
                yield Record(name, image, captions, split if isinstance(split, str) else None)
            except BrokenRecordError as error:
                report(Problem(place, str(error)))

    def _span(self, span: object) -> tuple[int, int]:
        match span:
            case [int(first), int(count)] if 0 <= first < first + count <= self.spec.regions:
                return first, count
        raise BrokenRecordError(f"'regions' is {shown(span)}, not [first, count] within {self.spec.regions} regions")


@dataclass(frozen=True, slots=True)
class RegionSlice:
    """The regions of one image: `count` regions of a store, starting at `first`. An image source, like a file."""

    store: Path
    image: str
    first: int
    count: int

    @property
    def name(self) -> str:
        """The store's path and the image's name."""
        return f"{self.store}:{self.image}"

    def read(self) -> bytes:
        """Return these regions as bytes; see `media.regions`."""
        try:
            status = (self.store / SPEC_FILE).stat()
            opened = _opened(self.store, status.st_mtime_ns, status.st_ino)
        except (OSError, DataError) as error:
            said = error.what if isinstance(error, DataError) else str(error)
            raise MediaError(
                self.name, f"the region store cannot be opened: {said}", "Create the store again."
            ) from error
        own = slice(self.first, self.first + self.count)
        return region_bytes(opened.features[own], None if opened.boxes is None else opened.boxes[own])


def is_region_store(path: Path) -> bool:
    """Return whether a folder is a store."""
    return (path / SPEC_FILE).is_file()


def read_region_store(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read the records of a store in order; `images` is not used."""
    return RegionStore.open(path).records(report)


@lru_cache(maxsize=16)
def _opened(folder: Path, *_: int) -> RegionStore:
    """Return an open store, cached by the modification time and inode of its spec file."""
    return RegionStore.open(folder)


def _mapped(path: Path, dtype: str, shape: tuple[int, int]) -> Floats:
    expected = shape[0] * shape[1] * np.dtype(dtype).itemsize
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}", "Create the store again.") from error
    if size != expected or not expected:
        raise DataError(f"{path}: has {size:,} bytes instead of {expected:,}", "Create the store again.")
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)
