"""Text files with one text per line, plain or as JSON."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import PendingFile
from sightline.collection.indexing.changed_files import FolderScan
from sightline.collection.indexing.report import FileProblem
from sightline.datasets.fields import decoded, is_unicode, shown
from sightline.datasets.files import numbered_lines
from sightline.datasets.record import BrokenRecordError
from sightline.errors import DataError

TEXT_SUFFIXES = frozenset({".jsonl", ".txt"})


def text_hash(text: str) -> bytes:
    """Return the hash that identifies a text."""
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def scan_texts(catalog: Catalog, root: int, path: Path, *, prune: bool = False) -> FolderScan:
    """Compare the lines of a file with the catalog.

    The file is read at every run; only new texts are encoded. A text with an id is identified by that id, wherever it
    is in the file; other texts are identified by their line. If the file cannot be read, its texts are kept, unless
    `prune` is set.
    """
    try:
        work = list(_lines(root, path))
    except DataError as error:
        if not prune:
            return FolderScan(skipped=[FileProblem(str(path), error.what.removeprefix(f"{path}: "))])
        work = []
    existing = {found.raw for found in work}
    return FolderScan(work, [row for row in catalog.rows(root) if row.raw not in existing])


def _lines(root: int, path: Path) -> Iterator[PendingFile]:
    parse = _from_json if path.suffix.lower() == ".jsonl" else _from_plain
    keys: dict[str, int] = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        text, key, problem = "", None, ""
        try:
            text, key = parse(line)
            if key is not None and keys.setdefault(key, number) != number:
                raise BrokenRecordError(f"the id {shown(key)} is already used on line {keys[key]}")
        except BrokenRecordError as error:
            key, problem = None, str(error)
        raw = f"{number}" if key is None else f"id:{key}"
        where = f"{path.name}:{number}"
        yield PendingFile(root, raw.encode(), where, path, text=text, line=number, key=key, problem=problem)


def _from_plain(line: bytes) -> tuple[str, None]:
    return decoded(line).strip(), None


def _from_json(line: bytes) -> tuple[str, str | None]:
    try:
        value = json.loads(decoded(line))
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"not JSON: {error}") from error
    if isinstance(value, str):
        return _text(value), None
    if not isinstance(value, dict):
        raise BrokenRecordError(f"the line is {shown(value)}, not a string or an object {{…}}")
    if value.keys().isdisjoint({"text", "caption"}):
        raise BrokenRecordError("the line has neither 'text' nor 'caption'")
    return _text(value.get("text", value.get("caption"))), _key(value.get("id"))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BrokenRecordError(f"the text is {shown(value)}, not a string")
    if not value.strip():
        raise BrokenRecordError("the text is empty")
    if not is_unicode(value):
        raise BrokenRecordError("the text has a lone surrogate, which is not valid Unicode")
    return value.strip()


def _key(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or not is_unicode(str(value)):
        raise BrokenRecordError(f"'id' is {shown(value)}, not a string or an integer")
    return str(value)
