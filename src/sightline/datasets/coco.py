"""COCO's own caption files: `captions_train2014.json`, `captions_val2017.json` and files in their layout.

The split is taken from the file name. Images are looked up in `images`, or in the folders of COCO's archives beside the
annotations: `train2014`, `val2014`, `train2017`, `val2017` or `images`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sightline.datasets.fields import clean_captions, file_name, key_of, mapping, sequence, shown
from sightline.datasets.files import ImageFolder, json_document
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import split_in_name
from sightline.errors import DataError
from sightline.media import ImageFile

_PARTS = ("train2014", "val2014", "train2017", "val2017")
_Captions = dict[int | str, list[object]]


def read_coco(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Yield a record for each image, in file order; an image without annotations gets a record without captions."""
    document = json_document(path)
    try:
        entries = sequence(document.get("images"), "'images'")
        annotations = sequence(document.get("annotations"), "'annotations'")
    except BrokenRecordError as error:
        raise DataError(f"{path}: {error}", "Use a COCO caption file, such as captions_val2014.json.") from error
    captions = _captions_by_image(path, annotations, report)
    yield from _records(path, entries, captions, ImageFolder(_candidates(path, images)), report)
    for image in captions:
        report(Problem(f"{path}:annotations", f"captions for image {image!r}, which is not among the images"))


def _captions_by_image(path: Path, annotations: list[object], report: OnProblem) -> _Captions:
    """Group the captions by image."""
    captions: _Captions = {}
    for number, annotation in enumerate(annotations):
        try:
            fields = mapping(annotation, "the annotation")
            if "caption" not in fields:
                raise BrokenRecordError("has no 'caption'; is this a file of object boxes?")
            captions.setdefault(_identity(fields.get("image_id"), "'image_id'"), []).append(fields["caption"])
        except BrokenRecordError as error:
            report(Problem(f"{path}:annotations[{number}]", str(error)))
    return captions


def _records(
    path: Path, entries: list[object], captions: _Captions, folder: ImageFolder, report: OnProblem
) -> Iterator[Record]:
    """Build the records, removing their captions from `captions`; what remains there belongs to no image."""
    split = split_in_name(path.name)
    for number, entry in enumerate(entries):
        place = f"{path}:images[{number}]"
        try:
            fields = mapping(entry, "the entry")
            texts = captions.pop(_identity(fields.get("id"), "'id'"), [])
            name = file_name(fields.get("file_name"), "'file_name'")
            cleaned = clean_captions(texts, place, report)
        except BrokenRecordError as error:
            report(Problem(place, str(error)))
            continue
        yield Record(key_of(name), ImageFile(folder.path(name)), {DEFAULT_LANGUAGE: cleaned} if cleaned else {}, split)


def _identity(value: object, what: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BrokenRecordError(f"{what} is {shown(value)}, not a number or text")
    return value


def _candidates(path: Path, images: Path | None) -> list[Path]:
    """List the folders to search, starting with the one for the file's own split."""
    named = re.search(r"(?:train|val|test)\d{4}", path.name)
    parts = [named[0]] if named else list(_PARTS)
    roots = [images] if images else [path.parent, path.parent / "images", path.parent.parent]
    inside = [root / below / part for root in roots for below in ("", "images") for part in parts]
    return list(dict.fromkeys([roots[0], *inside, *roots[1:]]))
