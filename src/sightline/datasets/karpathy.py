"""Karpathy's split files: `dataset_flickr8k.json`, `dataset_flickr30k.json`, `dataset_coco.json`.

Nearly all published results use these splits. Images are looked up in `images`, or next to the file; for COCO, in the
subfolder named by `filepath`, or directly in the folder.
"""

from collections.abc import Iterator
from pathlib import Path

from sightline.datasets.fields import clean_captions, file_name, key_of, mapping, sequence
from sightline.datasets.files import ImageFolder, image_folders_in, json_document
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import canonical_split
from sightline.errors import DataError
from sightline.media import ImageFile


def read_karpathy(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read the records in file order; `restval`, the part of COCO's val that everyone trains on, becomes `train`."""
    roots = [images] if images else image_folders_in(path.parent)
    folders: dict[str, ImageFolder] = {}
    try:
        entries = sequence(json_document(path).get("images"), "'images'")
    except BrokenRecordError as error:
        raise DataError(f"{path}: {error}", "Use a file in Karpathy's format.") from error
    for number, entry in enumerate(entries):
        place = f"{path}:images[{number}]"
        try:
            fields = mapping(entry, "the entry")
            name = file_name(fields.get("filename"), "'filename'")
            captions = _captions(fields, place, report)
            split = file_name(fields.get("split"), "'split'")
            below = file_name(fields["filepath"], "'filepath'") if fields.get("filepath") else ""
        except BrokenRecordError as error:
            report(Problem(place, str(error)))
            continue
        if below not in folders:
            folders[below] = ImageFolder([folder for root in roots for folder in dict.fromkeys([root / below, root])])
        yield Record(key_of(name), ImageFile(folders[below].path(name)), captions, canonical_split(split))


def _captions(fields: dict[str, object], place: str, report: OnProblem) -> dict[str, tuple[str, ...]]:
    sentences = sequence(fields.get("sentences"), "'sentences'")
    raw = [mapping(sentence, "a sentence").get("raw") for sentence in sentences]
    captions = clean_captions(raw, place, report)
    return {DEFAULT_LANGUAGE: captions} if captions else {}
