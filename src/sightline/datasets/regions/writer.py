"""Writing regions to a store, image by image, with the captions of a data set."""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from sightline import settings
from sightline.datasets.fields import file_name
from sightline.datasets.record import BrokenRecordError, OnProblem, Problem, Record, stop_at
from sightline.datasets.regions.detections import Found, Keep
from sightline.datasets.regions.names import Names
from sightline.datasets.regions.partial import BEGUN_FILE, Lines, begin, building_of, whole_part
from sightline.datasets.regions.store import BOXES_FILE, FEATURES_FILE, FORMAT, IMAGES_FILE, SPEC_FILE, StoreSpec
from sightline.errors import DataError

WriteProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of writing a store: its spec, how many images have captions, and the records without regions."""

    spec: StoreSpec
    captioned: int
    lacking: tuple[Record, ...] = ()


def write_regions(
    found: Iterable[Found],
    out: str | Path,
    *,
    captions: Sequence[Record] = (),
    keep: Keep | None = None,
    on_problem: OnProblem | None = None,
    made_of: str = "",
    progress: WriteProgress | None = None,
) -> Written:
    """Write the regions of images to a new store, which appears only when it is complete.

    captions: records whose captions and splits are copied to the images of the same name; see `Names`.
    keep: selects the regions of an image; by default all.
    on_problem: called for each image that cannot be added, which is then skipped; by default the first one raises
        `DataError`.
    made_of: the source of `found`. If given, an interrupted store is kept, and the next call with the same value
        resumes it, skipping the images that it has (see `names_in`).
    progress: called with the number of images written so far.
    """
    out, report = Path(out), on_problem or stop_at
    if out.exists():
        raise DataError(f"{out}: already exists", "Choose another --out, or delete it first.")
    building = building_of(out)
    before = whole_part(building, made_of) if made_of else None
    if before is None:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
    try:
        with ExitStack() as files:
            features, boxes, images = (
                files.enter_context((building / name).open("ab")) for name in (FEATURES_FILE, BOXES_FILE, IMAGES_FILE)
            )
            writer = _Writer(features, boxes, images, Names(captions))
            if before is not None:
                writer.go_on(*before)
            for one in found:
                kept = one if keep is None else keep(one)
                try:
                    writer.add(kept)
                except BrokenRecordError as error:
                    report(Problem(f"{out}, picture {one.name}", str(error)))
                    continue
                if made_of and writer.new == 1 and before is None:
                    begin(building, made_of, _alone(kept))
                if progress is not None and writer.new:
                    progress(writer.new)
        spec = _finish(building, writer.spec)
        building.rename(out)
    finally:
        if not made_of or not (building / BEGUN_FILE).exists():
            shutil.rmtree(building, ignore_errors=True)  # does not exist after success
    return Written(spec, writer.captioned, tuple(record for record in captions if record.key not in writer.matched))


def _finish(folder: Path, spec: StoreSpec | None) -> StoreSpec:
    """Write the store's spec, after all its other files."""
    if spec is None:
        raise DataError("there are no regions to write", "Check that it is the right file and complete.")
    if not spec.boxes:
        (folder / BOXES_FILE).unlink()
    (folder / SPEC_FILE).write_text(json.dumps(settings.plain(spec), indent=2) + "\n", encoding="utf-8")
    (folder / BEGUN_FILE).unlink(missing_ok=True)
    return spec


class _Writer:
    """A store that is being written; `spec` describes what it contains so far."""

    def __init__(self, features: IO[bytes], boxes: IO[bytes], images: IO[bytes], names: Names) -> None:
        self._features, self._boxes, self._images, self._names = features, boxes, images, names
        self._seen: set[str] = set()
        self._passed_over: set[str] = set()
        self.spec: StoreSpec | None = None
        self.matched: set[str] = set()
        self.captioned = self.new = 0

    def go_on(self, spec: StoreSpec, lines: Lines) -> None:
        """Resume from an earlier run."""
        self.spec = spec
        for line in lines:
            self._seen.add(line["image"])
            self._count(self._names.find(line["image"]), bool(line["captions"]))
        self._passed_over = set(self._seen)

    def add(self, found: Found) -> None:
        """Add an image whose regions have the shape of earlier ones; images that an earlier run wrote are skipped."""
        if found.name in self._passed_over:
            self._passed_over.remove(found.name)
            return
        if found.name in self._seen:
            raise BrokenRecordError("is listed twice")
        file_name(found.name, "the picture's name")
        alone = _alone(found)
        before = self.spec or replace(alone, images=0, regions=0)
        if replace(alone, images=0, regions=0) != replace(before, images=0, regions=0):
            raise BrokenRecordError(f"regions have {_said(alone)}, but earlier ones have {_said(before)}")
        self._features.write(np.ascontiguousarray(found.features, dtype=alone.dtype).tobytes())
        if found.boxes is not None:
            self._boxes.write(np.ascontiguousarray(found.boxes, dtype=np.float32).tobytes())
        self._images.write(self._line(found, before.regions).encode())
        self._seen.add(found.name)
        self.new += 1
        self.spec = replace(before, images=before.images + 1, regions=before.regions + alone.regions)

    def _line(self, found: Found, first: int) -> str:
        captions, split = found.captions, found.split
        record = self._names.find(found.name)
        if record is not None:
            captions, split = record.captions, record.split
        self._count(record, bool(captions))
        fields = {"image": found.name, "regions": [first, len(found.features)], "captions": dict(captions)}
        return json.dumps(fields if split is None else {**fields, "split": split}, ensure_ascii=False) + "\n"

    def _count(self, record: Record | None, is_captioned: bool) -> None:
        self.captioned += is_captioned
        if record is not None:
            self.matched.add(record.key)


def _alone(found: Found) -> StoreSpec:
    """Return the spec of a store with only this image."""
    count, dim = found.features.shape
    is_half = found.features.dtype == np.float16
    return StoreSpec(FORMAT, 1, count, dim, "float16" if is_half else "float32", found.boxes is not None)


def _said(spec: StoreSpec) -> str:
    return f"{spec.feature_dim} numbers in {spec.dtype}, with{'' if spec.boxes else 'out'} boxes"
