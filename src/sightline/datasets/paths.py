"""Resolving a path to files: a file, a folder of shards, a glob pattern, or a range in braces."""

import glob
import re
from collections.abc import Iterator
from pathlib import Path

from sightline.datasets.files import entries_of
from sightline.datasets.multi30k import parts_of
from sightline.datasets.regions.store import is_region_store
from sightline.datasets.shards import is_shard
from sightline.datasets.splits import SPLITS, canonical_split
from sightline.errors import DataError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_ANNOTATIONS = (
    "*.jsonl",
    "dataset*.json",
    "captions_*.json",
    "*.token",
    "*.token.txt",
    "results.csv",
    "captions.txt",
    "metadata.csv",
)
_METADATA = ("metadata.jsonl", "metadata.csv")  # Hugging Face's, one in each split's folder


def files_of(path: str | Path) -> list[Path]:
    """List the files, or the one folder, that hold the data set at `path`, in reading order.

    An existing name is used as it is, even if it contains brackets. Otherwise `{000..004}` and `{a,b}` are expanded as
    in a shell, and each file must exist; `*`, `?`, `[…]` and `**` match existing files, sorted.
    """
    if Path(path).exists():
        return _inside(Path(path))
    names = list(dict.fromkeys(name for spelt in _spelt_out(str(path)) for name in _matches(spelt, path)))
    return [file for name in names for file in _inside(Path(name))]


def _inside(path: Path) -> list[Path]:
    """Return the shards of a folder, or its only annotation file; any other folder is returned as it is."""
    if not path.is_dir() or is_region_store(path):
        return [path]
    visible = [entry for entry in entries_of(path) if not entry.name.startswith(".")]
    if shards := [entry for entry in visible if is_shard(entry)]:
        return shards
    if parts_of(path):
        return [path]
    if listed := _metadata_of_splits(visible):
        return listed
    annotations = [entry for entry in visible if any(entry.match(pattern) for pattern in _ANNOTATIONS)]
    annotations = [entry for entry in annotations if "lemma" not in entry.name]
    if len(annotations) > 1:
        names = ", ".join(entry.name for entry in annotations)
        raise DataError(f"{path}: contains more than one data set: {names}", f"Choose one of them: {annotations[0]}")
    return annotations or [path]


def _metadata_of_splits(entries: list[Path]) -> list[Path]:
    """Return the metadata files in the folders of splits, such as `train/metadata.jsonl`."""
    folders = [entry for entry in entries if canonical_split(entry.name) in SPLITS and entry.is_dir()]
    return [folder / name for folder in folders for name in _METADATA if (folder / name).is_file()]


def _spelt_out(pattern: str) -> Iterator[str]:
    """Expand braces from left to right; braces that are neither a range nor a list are kept."""
    for braces in _BRACES.finditer(pattern):
        if choices := _choices(braces[1]):
            for choice in choices:
                yield from _spelt_out(pattern[: braces.start()] + choice + pattern[braces.end() :])
            return
    yield pattern


def _choices(inside: str) -> Iterator[str] | list[str]:
    if bounds := _RANGE.fullmatch(inside):
        first, last = int(bounds[1]), int(bounds[2])
        padded = any(len(bound) > 1 and bound.startswith("0") for bound in bounds.groups())
        width = max(map(len, bounds.groups())) if padded else 0
        step = 1 if first <= last else -1
        return (f"{number:0{width}d}" for number in range(first, last + step, step))
    return inside.split(",") if "," in inside else []


def _matches(name: str, given: str | Path) -> list[str]:
    if Path(name).exists():
        return [name]
    # Not Path.glob: it lists hidden files and fails on patterns that a shell accepts.
    found = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else []  # noqa: PTH207
    if not found:
        problem = f"{name}: no such file or folder" if not glob.has_magic(name) else f"{name}: no file matches"
        asked = "" if name == str(given) else f" (requested: {given})"
        raise DataError(problem + asked, "Check the spelling, and the folder it is relative to.")
    return found
