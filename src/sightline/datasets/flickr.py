"""Flickr8k and Flickr30k as their authors and mirrors publish them, and CSV files: one caption per line.

Three layouts: `name.jpg#0<TAB>caption` (`Flickr8k.token.txt`, `results_20130124.token`), `name.jpg| 0| caption`
(`results.csv`), and a table of images and captions under a header, separated by commas or tabs (`captions.txt`,
open_clip's CSV, `metadata.csv` of Hugging Face; see `CsvHeader`). The captions of an image need not be adjacent. Splits
come from a table's column `split`, or from the lists next to the file: `Flickr_8k.trainImages.txt` and so on, or
`train.txt`, `val.txt`, `test.txt`; an image in no list has no split.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from sightline.datasets.csv_table import CsvHeader
from sightline.datasets.fields import clean_captions, decoded, file_name, key_of
from sightline.datasets.files import ImageFolder, entries_of, image_folders_in, numbered_lines
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import SPLITS, canonical_split
from sightline.media import ImageFile

_TOKEN = re.compile(r"([^\t]+?)(?:#\d+)?\t(.*)", re.DOTALL)
_BARS = re.compile(r"([^|]+)\|\s*\d+\s*\|(.*)", re.DOTALL)
_BARS_HEADER = re.compile(r"(?:image|file|path)(?:_?(?:name|path))?\s*[|].*", re.IGNORECASE)
_SPLIT_LIST = re.compile(r"(?:.*[._-])?(train|dev|val|valid|test)[._-]?(?:images)?\.txt", re.IGNORECASE)

_Spelling = Callable[[str], tuple[str, str, str]]
"""Parses a line into image, caption and split, which may be empty."""


def spelling_of(first_line: str) -> _Spelling | None:
    """Return the line parser for a file, chosen by its first line; None if the layout is unknown."""
    if (header := _table_header(first_line)) is not None:
        return header.row
    if _BARS.fullmatch(first_line) or _BARS_HEADER.fullmatch(first_line):
        return lambda line: _matched(_BARS, line, "name.jpg| number| caption")
    if re.match(r"[^\t]+#\d+\t", first_line):
        return lambda line: _matched(_TOKEN, line, "name.jpg#number<TAB>caption")
    return None


def read_flickr(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read a record for each image, in the order in which images first appear."""
    splits = _splits_beside(path, report)
    near = [*image_folders_in(path.parent), *image_folders_in(path.parent.parent)]
    folder = ImageFolder([images] if images else near)
    captions: dict[str, list[str]] = {}
    named: dict[str, str] = {}
    for place, name, text, split in _rows(path, report):
        if split and named.setdefault(name, split) != split:
            report(
                Problem(place, f"the split is {split!r}, but an earlier line has {named[name]!r} for the same image")
            )
            continue
        captions.setdefault(name, []).extend([text] if text else [])
    shared = Counter(map(key_of, captions))
    beside = canonical_split(path.parent.name) if path.stem == "metadata" else ""
    for name, texts in captions.items():
        key = key_of(name) if shared[key_of(name)] == 1 else name
        listed = splits.get(key_of(name), beside if beside in SPLITS else None)
        captioned = {DEFAULT_LANGUAGE: tuple(texts)} if texts else {}
        yield Record(key, ImageFile(folder.path(name)), captioned, named.get(name, listed))


def _table_header(line: str) -> CsvHeader | None:
    return None if "|" in line else CsvHeader.read(line)


def _rows(path: Path, report: OnProblem) -> Iterator[tuple[str, str, str, str]]:
    """Yield the place, image, caption and split of each line; the last two may be empty."""
    spelling: _Spelling | None = None
    for number, raw in numbered_lines(path):
        place = f"{path}:{number}"
        try:
            line = decoded(raw)
            if not line.strip():
                continue
            if spelling is None:
                spelling = spelling_of(line)
                if spelling is None:
                    raise BrokenRecordError("not a line from a Flickr caption file: name.jpg#number<TAB>caption")
                if _BARS_HEADER.fullmatch(line) or _table_header(line):
                    continue
            name, text, split = spelling(line)
            name, split = file_name(name.strip(), "the picture's name"), canonical_split(split)
            yield place, name, "".join(clean_captions([text], place, report)), split
        except BrokenRecordError as error:
            report(Problem(place, str(error)))


def _matched(pattern: re.Pattern[str], line: str, wanted: str) -> tuple[str, str, str]:
    found = pattern.fullmatch(line)
    if found is None:
        raise BrokenRecordError(f"the line is not of the form {wanted}")
    return found[1], found[2], ""


def _splits_beside(path: Path, report: OnProblem) -> dict[str, str]:
    """Read the split of each image, by key, from the lists; an image in two lists is reported."""
    splits: dict[str, str] = {}
    for listing in entries_of(path.parent):
        named = _SPLIT_LIST.fullmatch(listing.name)
        if named is None or listing == path:
            continue
        split = canonical_split(named[1])
        for number, raw in numbered_lines(listing):
            key = key_of(raw.decode(errors="replace").strip())
            if key and splits.setdefault(key, split) != split:
                report(Problem(f"{listing}:{number}", f"{key!r} is also in split {splits[key]!r}"))
    return splits
