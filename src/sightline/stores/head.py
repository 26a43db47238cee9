"""The small file that says what a local store holds; whatever it does not speak of is not there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sightline import settings
from sightline.errors import StoreError
from sightline.files import write_atomic
from sightline.stores.base import Shape

FORMAT = 1
HEAD_FILE = "head.json"
_ANEW = "Delete that folder of vectors and index again."


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a store at one flush.

    generation: which files hold it; `compact` begins the next.
    counts: how many records of each file are valid, by the file's name.
    """

    format: int
    shape: Shape
    generation: int
    counts: Mapping[str, int]


def read_head(folder: Path) -> Head | None:
    """Read the head of a store's folder; None where there is none yet."""
    try:
        return settings.read(Head, folder / HEAD_FILE, "store", FORMAT, StoreError, _ANEW)
    except FileNotFoundError:
        return None


def write_head(folder: Path, head: Head) -> None:
    """Put a new head in the place of the old one: after a crash there is one or the other, whole."""
    write_atomic(folder / HEAD_FILE, json.dumps(settings.plain(head)))


def check_shape(folder: Path, head: Head, shape: Shape) -> None:
    """Refuse a store whose vectors have other widths than the ones that will be added or looked for."""
    if head.shape != shape:
        raise StoreError(
            f"{folder}: holds vectors of {head.shape}, not of {shape}",
            f"Use the model that made them. To change the model: {_ANEW[0].lower()}{_ANEW[1:]}",
        )
