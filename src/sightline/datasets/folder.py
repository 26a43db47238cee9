"""A folder of images with their captions next to them: `dog.jpg` and `dog.txt`, one caption per line.

`dog.de.txt` holds captions in German. An image without a text file is a record without captions; a text file without
an image (a `README.txt`) is ignored. Subfolders called `train`, `val` and `test` are the splits.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from sightline.datasets.fields import clean_captions, decoded, is_unicode
from sightline.datasets.files import entries_of, numbered_lines
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import SPLITS, canonical_split
from sightline.media import IMAGE_SUFFIXES, ImageFile, find_images

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*")


def read_folder(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read every image under `path`, sorted; its key is its path relative to `path`. `images` is not used."""
    caption_files = lru_cache(maxsize=64)(_caption_files)
    for image in find_images(path, lambda error: report(Problem(error.name, error.reason))):
        below = image.relative_to(path)
        if not is_unicode(str(below)):
            report(Problem(str(path), f"the name of {str(below)!r} is not Unicode"))
            continue
        captions: dict[str, tuple[str, ...]] = {}
        for language, text in caption_files(image.parent).get(image.stem, ()):
            if said := _captions(text, report):
                captions[language] = captions.get(language, ()) + said
        split = canonical_split(below.parts[0]) if len(below.parts) > 1 else None
        yield Record(below.as_posix(), ImageFile(image), captions, split if split in SPLITS else None)


def _caption_files(folder: Path) -> dict[str, list[tuple[str, Path]]]:
    """List one folder's caption files with their languages, by the stem of their image.

    `a.de.txt` belongs to `a.de.jpg` if that image exists, and otherwise holds German captions of `a.jpg`.
    """
    names = [entry for entry in entries_of(folder) if not entry.name.startswith(".")]
    stems = {entry.stem for entry in names if entry.suffix.lower() in IMAGE_SUFFIXES}
    files: dict[str, list[tuple[str, Path]]] = {}
    for text in (entry for entry in names if entry.suffix.lower() == ".txt"):
        stem, _, language = text.stem.rpartition(".")
        if text.stem in stems:
            files.setdefault(text.stem, []).append((DEFAULT_LANGUAGE, text))
        elif stem in stems and _LANGUAGE.fullmatch(language):
            files.setdefault(stem, []).append((language, text))
    return files


def _captions(text: Path, report: OnProblem) -> tuple[str, ...]:
    captions: tuple[str, ...] = ()
    for number, raw in numbered_lines(text):
        place = f"{text}:{number}"
        try:
            line = decoded(raw)
            captions += clean_captions([line], place, report) if line.strip() else ()
        except BrokenRecordError as error:
            report(Problem(place, str(error)))
    return captions
