"""Read JSON Lines, the format for your own captions.

    {"image": "beach/1.jpg", "captions": ["a dog runs", "a wet dog"], "split": "train"}
    {"image": "beach/2.jpg", "captions": {"en": ["two boats"], "de": ["zwei Boote"]}, "key": "boats"}
    {"image": "beach/3.jpg", "caption": "an empty beach"}

    {"file_name": "beach/4.jpg", "text": "a sunset"}

The last line is from a Hugging Face `metadata.jsonl`; such a file in a folder called `train`, `validation` or `test`
belongs to that split. Relative names are resolved against `images`, or against the file's folder. The default key of a
record is its image's name as written. Many files have a line for each caption: adjacent lines about the same image
become one record, because an image listed twice would compete with itself in a gallery. A distractor has
`"captions": []`.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sightline.datasets.fields import captions_of, file_name, is_unicode, json_object, label_of, shown
from sightline.datasets.files import numbered_lines
from sightline.datasets.record import BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import SPLITS, canonical_split
from sightline.media import ImageFile


def read_jsonl(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read the records of a file in order; blank lines are ignored."""
    root = images or path.parent
    current: Record | None = None
    named = canonical_split(path.parent.name) if path.name == "metadata.jsonl" else ""
    beside = named if named in SPLITS else None
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            record = _record(json_object(line), root, place, report, beside)
            joined = _join(current, record) if current else None
        except BrokenRecordError as error:
            report(Problem(place, str(error)))
            continue
        if current and not joined:
            yield current
        current = joined or record
    if current:
        yield current


def _usual_names(fields: dict[str, object]) -> dict[str, object]:
    """Rename the fields of a Hugging Face line to ours; other lines are returned unchanged."""
    if "file_name" not in fields or "image" in fields:
        return fields
    renamed = {"image": fields["file_name"]}
    if "text" in fields and not fields.keys() & {"caption", "captions"}:
        renamed["caption"] = fields["text"]
    return fields | renamed


def _record(fields: dict[str, object], root: Path, place: str, report: OnProblem, beside: str | None = None) -> Record:
    fields = _usual_names(fields)
    name = file_name(fields.get("image"), "'image'")
    captions = captions_of(fields, place, report)
    if captions is None:
        raise BrokenRecordError(
            "has neither 'captions' nor 'caption'; for an image without captions, write \"captions\": []"
        )
    split = fields.get("split")
    if split is not None and not isinstance(split, str):
        raise BrokenRecordError(f"'split' is {shown(split)}, not text")
    key = _key(fields["key"]) if fields.get("key") is not None else name
    canonical = canonical_split(split) if split else beside
    return Record(key, ImageFile(root / name), captions, canonical, label_of(fields))


def _key(value: object) -> str:
    """Return the key as text; numbers are allowed."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip() and is_unicode(value):
        return value
    raise BrokenRecordError(f"'key' is {shown(value)}, neither text nor a whole number")


def _join(first: Record, second: Record) -> Record | None:
    """Merge two records of the same image; None if they are of different images."""
    if first.key != second.key or first.image != second.image:
        return None
    if first.split != second.split:
        raise BrokenRecordError(
            f"the split is {second.split!r}, but the previous line has {first.split!r} for the same image"
        )
    languages = dict.fromkeys([*first.captions, *second.captions])
    both = {name: first.captions.get(name, ()) + second.captions.get(name, ()) for name in languages}
    return replace(first, captions=both)
