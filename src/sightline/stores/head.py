"""The head of a local store: a small file that says which records are valid. Anything else in the folder is ignored."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline import settings
from sightline.errors import DamagedStoreError, StoreError
from sightline.files import read_regular, write_atomic
from sightline.stores.base import Shape

WITH_CHECKSUMS, WITH_FAST = 2, 3
"""Format 1 had no checksums; it can be read, and is upgraded on the next write. Format 3 marks fast-graph items."""

HEAD_FILE = "head.json"
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a store at one flush.

    generation: the number of the current files; `compact` starts the next.
    counts: the number of valid records in each file, by file name.
    tails: the checksum of the bytes after the last whole block of each file; None in format 1.
    """

    format: int
    shape: Shape
    generation: int
    counts: Mapping[str, int]
    tails: Mapping[str, int] | None = None


def read_head(folder: Path) -> Head | None:
    """Read the head in a store's folder; None if there is none yet."""
    path = folder / HEAD_FILE
    try:
        data = json.loads(read_regular(path, _LARGEST))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedStoreError(f"{path}: cannot be read: {error}") from error
    found = data.get("format") if isinstance(data, dict) else None
    if not isinstance(found, int) or not 1 <= found <= WITH_FAST:
        raise StoreError(
            f"{path}: has store format {found!r}, but this version of Sightline reads formats 1 to {WITH_FAST}",
            f"Update Sightline, or delete {folder} and index again.",
        )
    if found > 1 and data.pop("checksum", None) != _digest(data):
        raise DamagedStoreError(f"{path} is damaged: its checksum is wrong")
    head = settings.parse(Head, data, str(path), DamagedStoreError)
    if head.generation < 0 or any(count < 0 for count in head.counts.values()):
        raise DamagedStoreError(f"{path} is damaged: it contains negative numbers")
    return head


def write_head(folder: Path, head: Head) -> None:
    """Replace the head atomically: after a crash, either the old or the new one exists."""
    data = settings.plain(head)
    write_atomic(folder / HEAD_FILE, json.dumps({**data, "checksum": _digest(data)}))


def check_shape(folder: Path, head: Head, shape: Shape) -> None:
    """Refuse a store whose dimensions differ from those expected."""
    if head.shape != shape:
        raise StoreError(
            f"{folder}: stores vectors of {head.shape}, but {shape} was expected",
            f"Use the model that created them. To change the model, delete {folder} and index again.",
        )


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
