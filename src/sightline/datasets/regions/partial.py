"""Resuming an interrupted store from its complete part.

Besides the usual files, the folder of an unfinished store has `begun.json`: the source of the store, and the shape of
its regions.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sightline import settings
from sightline.datasets.files import numbered_lines
from sightline.datasets.regions.store import BOXES_FILE, FEATURES_FILE, IMAGES_FILE, StoreSpec
from sightline.errors import DataError
from sightline.media.regions import CORNERS

BEGUN_FILE = "begun.json"
Lines = list[dict[str, Any]]


def building_of(out: Path) -> Path:
    """Return the folder in which a store is written until it is complete."""
    return out.with_name(f"{out.name}.building")


def begin(building: Path, made_of: str, spec: StoreSpec) -> None:
    """Record the source of a store and the shape of its regions."""
    begun = {"made_of": made_of, "spec": settings.plain(replace(spec, images=0, regions=0))}
    (building / BEGUN_FILE).write_text(json.dumps(begun) + "\n", encoding="utf-8")


def names_in(out: Path, made_of: str) -> frozenset[str]:
    """Return the names of the images already in an interrupted store, which need not be processed again."""
    found = whole_part(building_of(out), made_of)
    return frozenset() if found is None else frozenset(line["image"] for line in found[1])


def whole_part(building: Path, made_of: str) -> tuple[StoreSpec, Lines] | None:
    """Truncate an interrupted store to its complete part and return that; None if there is none.

    Files are written one after another, each in blocks, so an image is complete only if all files contain all of it.
    """
    if not (building / BEGUN_FILE).is_file():
        return None
    begun = json.loads((building / BEGUN_FILE).read_text(encoding="utf-8"))
    if begun["made_of"] != made_of:
        raise DataError(
            f"{building}: was started with different arguments: {begun['made_of']}",
            "Continue with the same arguments, delete it, or choose another --out.",
        )
    empty = StoreSpec(**begun["spec"])
    sizes = {FEATURES_FILE: empty.feature_dim * np.dtype(empty.dtype).itemsize}
    if empty.boxes:
        sizes[BOXES_FILE] = 4 * CORNERS
    rows = min((building / name).stat().st_size // size for name, size in sizes.items())
    lines = list(_whole_lines(building / IMAGES_FILE, rows))
    spec = replace(empty, images=len(lines), regions=sum(line["regions"][1] for line in lines))
    for name, size in sizes.items():
        with (building / name).open("r+b") as file:
            file.truncate(spec.regions * size)
    kept = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (building / IMAGES_FILE).write_text(kept, encoding="utf-8")
    return spec, lines


def _whole_lines(path: Path, rows: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of complete images, up to the first incomplete one."""
    for _, line in numbered_lines(path):
        try:
            fields = json.loads(line)
        except ValueError:
            return
        if sum(fields["regions"]) > rows:
            return
        yield fields
