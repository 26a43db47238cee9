"""The formats of captioned images, and their detection by name and content."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from sightline.datasets.coco import read_coco
from sightline.datasets.fields import decoded, json_object
from sightline.datasets.files import both_ends, numbered_lines
from sightline.datasets.flickr import read_flickr, spelling_of
from sightline.datasets.folder import read_folder
from sightline.datasets.jsonl import read_jsonl
from sightline.datasets.karpathy import read_karpathy
from sightline.datasets.multi30k import parts_of, read_multi30k
from sightline.datasets.paths import files_of
from sightline.datasets.record import BrokenRecordError, OnProblem, Record
from sightline.datasets.regions.store import is_region_store, read_region_store
from sightline.datasets.shards import is_shard, read_shard
from sightline.errors import DataError
from sightline.media import find_images

Reader = Callable[[Path, Path | None, OnProblem], Iterator[Record]]
"""Reads one file or folder, given its path, its image folder (or None) and the problem callback."""

READERS: dict[str, Reader] = {
    "shards": read_shard,
    "jsonl": read_jsonl,
    "karpathy": read_karpathy,
    "coco": read_coco,
    "flickr": read_flickr,
    "multi30k": read_multi30k,
    "folder": read_folder,
    "regions": read_region_store,
}

_PEEK = 1 << 16
_KARPATHY = re.compile(rb'(?<!\\)"(?:sentences|filename)"\s*:')
_COCO = re.compile(rb'(?<!\\)"(?:annotations|file_name)"\s*:')


def recognise(path: str | Path) -> str:
    """Return the format of the data set at `path`, a key of `READERS`; raises `DataError` if unknown or mixed."""
    formats = list(dict.fromkeys(format_of(file) for file in files_of(path)))
    if len(formats) > 1:
        raise DataError(
            f"{path}: contains files in different formats: {', '.join(formats)}", "Read them one at a time."
        )
    return formats[0]


def format_of(path: Path) -> str:
    """Return the format of one file or folder."""
    found = _format_of_folder(path) if path.is_dir() else _format_of_file(path)
    if found is None:
        raise DataError(
            f"{path}: not a data set in a known format",
            "Use WebDataset shards (.tar), JSON lines (.jsonl), a Karpathy or COCO caption file (.json), a Flickr "
            "caption file, CSV with a header such as image,caption, a region store, or a folder of shards, of "
            "Multi30k's text files, or of images with .txt files or a metadata.jsonl.",
        )
    return found


def _format_of_folder(path: Path) -> str | None:
    if is_region_store(path):
        return "regions"
    if parts_of(path):
        return "multi30k"
    return "folder" if any(islice(find_images(path), 1)) else None


def _format_of_file(path: Path) -> str | None:
    name = path.name.lower()
    if is_shard(path):
        return "shards"
    if name.endswith((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")):
        return "jsonl"
    if name.endswith(".json"):
        return _format_of_json(path)
    if name.endswith((".token", ".txt", ".csv", ".tsv")):
        return "flickr" if spelling_of(_first_line(path)) else None
    return None


def _format_of_json(path: Path) -> str | None:
    """Detect the format of a JSON file by both of its ends: COCO's captions may follow megabytes of image entries."""
    head, tail = both_ends(path, _PEEK)
    for part in (head, tail):
        if _COCO.search(part):
            return "coco"
        if _KARPATHY.search(part):
            return "karpathy"
    return "jsonl" if _is_json_line(head.partition(b"\n")[0]) else None


def _is_json_line(line: bytes) -> bool:
    try:
        return "image" in json_object(line)
    except BrokenRecordError:
        return False


def _first_line(path: Path) -> str:
    for _, line in numbered_lines(path):
        if line.strip():
            try:
                return decoded(line[:_PEEK])
            except BrokenRecordError:
                return ""
    return ""
