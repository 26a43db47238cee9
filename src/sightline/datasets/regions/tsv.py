"""Features as tab-separated lines with base64 arrays: bottom-up attention and Oscar.

Bottom-up attention (Anderson et al. 2018) has six fields: image_id, image_w, image_h, num_boxes, boxes, features; boxes
are in pixels. Oscar has the image id, the number of boxes and the features; VinVL has the id and then the other two as
JSON. The last six numbers of Oscar's features are the box: its corners, width and height, relative to the image size.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sightline.datasets.fields import decoded, json_object, shown
from sightline.datasets.files import json_document, numbered_lines
from sightline.datasets.record import BrokenRecordError, OnProblem, Problem
from sightline.datasets.regions.detections import Floats, Found, relative

OSCAR_BOX = 6
_NAMES_OF_ROWS = "imageid2idx.json"


def read_bottom_up(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read a TSV file of bottom-up attention."""
    return _rows(path, report, lambda _, fields: _bottom_up(fields))


def read_oscar_lines(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read a `features.tsv` of Oscar or VinVL; `imageid2idx.json` next to it, if any, gives the names of the rows."""
    index = path.with_name(_NAMES_OF_ROWS)
    names = {row: name for name, row in json_document(index).items()} if index.is_file() else {}
    return _rows(path, report, lambda number, fields: _oscar(str(names.get(number - 1, fields[0])), fields))


def with_boxes_at_the_end(name: str, both: Floats) -> Found:
    """Split Oscar's features [n, dim + 6] into features and boxes."""
    if both.ndim != 2 or both.shape[1] <= OSCAR_BOX:
        raise BrokenRecordError(f"features have shape {list(both.shape)}, not [regions, dim + 6 for the box]")
    return Found(name, both[:, :-OSCAR_BOX], both[:, -OSCAR_BOX:-2])


def _rows(path: Path, report: OnProblem, parse: Callable[[int, list[str]], Found]) -> Iterator[Found]:
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        try:
            yield parse(number, decoded(line).split("\t"))
        except BrokenRecordError as error:
            report(Problem(f"{path}:{number}", str(error)))


def _bottom_up(fields: list[str]) -> Found:
    if len(fields) != 6:
        raise BrokenRecordError(f"{len(fields)} fields instead of 6")
    name, width, height, count, boxes, features = fields
    regions = _whole(count, "num_boxes")
    pixels = _array(boxes, regions, "boxes")
    if pixels.shape[1] != 4:
        raise BrokenRecordError(f"a box has {pixels.shape[1]} numbers, not 4")
    corners = relative(pixels, _whole(width, "image_w"), _whole(height, "image_h"))
    return Found(_name(name), _array(features, regions, "features"), corners)


def _oscar(name: str, fields: list[str]) -> Found:
    if len(fields) == 2:
        row = json_object(fields[1].encode())
        count, features = str(row.get("num_boxes")), row.get("features")
    elif len(fields) == 3:
        _, count, features = fields
    else:
        raise BrokenRecordError(f"{len(fields)} fields instead of 2 or 3")
    if not isinstance(features, str):
        raise BrokenRecordError(f"'features' is {shown(features)}, not text")
    return with_boxes_at_the_end(_name(name), _array(features, _whole(count, "num_boxes"), "features"))


def _name(text: str) -> str:
    if not text.strip():
        raise BrokenRecordError("the image has no name")
    return text.strip()


def _whole(text: str, what: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        raise BrokenRecordError(f"{what} is {shown(text)}, not a positive whole number")
    return int(text)


def _array(text: str, rows: int, what: str) -> Floats:
    """Decode float32 [rows, numbers]."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BrokenRecordError(f"{what} are not base64: {error}") from error
    if not data or len(data) % (4 * rows):
        raise BrokenRecordError(f"{what} have {len(data)} bytes, which do not divide into {rows} regions")
    return np.frombuffer(data, dtype="<f4").reshape(rows, -1)
