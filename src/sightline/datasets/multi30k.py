"""Multi30k: parallel text files with one caption per line, aligned with a list of images.

`train.en`, `train.de`, … have one caption per image; `train.1.en` to `train.5.en` together have five. The list is
`train_images.txt` or `train.txt`, beside them or in `image_splits`. Compressed files (`train.en.gz`) are read directly.
A caption belongs to the image on the same line of the list, so files of unequal length are rejected: a missing line
would assign every later caption to the wrong image.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from sightline.datasets.fields import clean_captions, decoded, file_name, key_of
from sightline.datasets.files import ImageFolder, entries_of, image_folders_in, numbered_lines
from sightline.datasets.record import BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import canonical_split, split_in_name
from sightline.errors import DataError
from sightline.media import ImageFile

_CAPTIONS = re.compile(r"(?P<part>[^.]+)(?:\.(?P<number>\d+))?\.(?P<language>[a-z]{2})(?:\.gz)?")
_NOT_LANGUAGES = {"gz", "js", "md", "py", "sh"}
_LISTS = ("{}_images.txt", "{}.images.txt", "{}.txt")


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """One split: the list of images and, by language, the caption files parallel to it."""

    name: str
    listing: Path
    captions: dict[str, list[Path]]


def parts_of(folder: Path) -> list[SplitFiles]:
    """Find the splits in a folder, sorted by name; captions without a list of images are ignored."""
    files: dict[str, list[tuple[str, int, Path]]] = {}
    for path in entries_of(folder):
        found = _CAPTIONS.fullmatch(path.name)
        if found and found["language"] not in _NOT_LANGUAGES and split_in_name(found["part"]):
            files.setdefault(found["part"], []).append((found["language"], int(found["number"] or 0), path))
    parts = []
    for name in sorted(files):
        captions: dict[str, list[Path]] = {}
        for language, _, path in sorted(files[name]):
            captions.setdefault(language, []).append(path)
        if listing := _listing(folder, name):
            parts.append(SplitFiles(name, listing, captions))
    return parts


def read_multi30k(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read every split of a folder.

    Splits keep their names: `test_2016_flickr` and `test_2017_mscoco` are different test sets.
    """
    folder = ImageFolder([images] if images else [*image_folders_in(path), *image_folders_in(path.parent)])
    for part in parts_of(path):
        _check_parallel(part)
        yield from _records(part, folder, report)


def _records(part: SplitFiles, folder: ImageFolder, report: OnProblem) -> Iterator[Record]:
    columns = [(language, path) for language, paths in part.captions.items() for path in paths]
    with ExitStack() as files:  # an error in `report` must not leave them open
        paths = [part.listing, *(path for _, path in columns)]
        rows = zip(*(files.enter_context(closing(numbered_lines(path))) for path in paths), strict=True)
        for (number, raw_name), *texts in rows:
            place = f"{part.listing}:{number}"
            try:
                # The lists of ambiguous COCO images append the annotation number: `name.jpg#123`.
                name = file_name(decoded(raw_name).partition("#")[0].strip(), "the picture's name")
                captions: dict[str, tuple[str, ...]] = {}
                for (language, path), (_, raw) in zip(columns, texts, strict=True):
                    place = f"{path}:{number}"
                    if said := clean_captions([decoded(raw)], place, report):
                        captions[language] = captions.get(language, ()) + said
            except BrokenRecordError as error:
                report(Problem(place, str(error)))
                continue
            yield Record(key_of(name), ImageFile(folder.path(name)), captions, canonical_split(part.name))


def _listing(folder: Path, part: str) -> Path | None:
    folders = (folder, folder / "image_splits", folder.parent / "image_splits")
    candidates = (place / pattern.format(part) for place in folders for pattern in _LISTS)
    return next((path for path in candidates if path.is_file()), None)


def _check_parallel(part: SplitFiles) -> None:
    files = [part.listing, *(path for paths in part.captions.values() for path in paths)]
    counts = {path: sum(1 for _ in numbered_lines(path)) for path in files}
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{path} has {count}" for path, count in counts.items())
        raise DataError(f"parallel files differ in their number of lines: {lengths}", "Download them again.")
