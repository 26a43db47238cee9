"""Features as torch tensors (Oscar) and HDF5 files (M3P)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sightline.datasets.fields import clean_captions, sequence, shown
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem
from sightline.datasets.regions.detections import Found, relative
from sightline.datasets.regions.tsv import with_boxes_at_the_end
from sightline.datasets.splits import split_in_name
from sightline.errors import DataError, SightlineError
from sightline.packages import install_extra

_COPY = "Copy or download it again."


def read_oscar_tensors(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read Oscar's `test_img_frcnn_feats.pt`, tensors [n, dim + 6] by image, and `test_captions.pt` next to it."""
    captions = _oscar_captions(path)
    split = split_in_name(path.name)
    for name, tensor in _loaded(path).items():
        place = f"{path}:{name}"
        try:
            if not hasattr(tensor, "numpy"):
                raise BrokenRecordError(f"is {shown(tensor)}, not a tensor")
            found = with_boxes_at_the_end(str(name), tensor.float().numpy())
            texts = _texts(captions.get(name), place, report)
            yield Found(found.name, found.features, found.boxes, captions=texts, split=split)
        except BrokenRecordError as error:
            report(Problem(place, str(error)))


def read_m3p(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read an `.h5` file of M3P: image_id, wh, num_boxes, bbox and features, with a row per image.

    Boxes are in pixels. Despite its name, `wh` is the height and then the width: M3P reads it that way.
    """
    try:
        import h5py
    except ImportError as error:
        raise SightlineError(
            f"reading M3P's features needs another package: {error}", install_extra("regions")
        ) from error
    try:
        with h5py.File(path, "r") as file:
            lacking = {"image_id", "wh", "features"} - file.keys()
            boxes = next((file[key] for key in ("bbox", "boxes") if key in file), None)
            if lacking or boxes is None:
                raise DataError(f"{path}: has no {', '.join(sorted(lacking)) or 'bbox'}", "Use an .h5 file from M3P.")
            for row in range(len(file["image_id"])):
                try:
                    yield _m3p(file, boxes, row)
                except (BrokenRecordError, OSError) as error:
                    report(Problem(f"{path}:{row}", str(error)))
    except OSError as error:
        raise DataError(f"{path}: damaged HDF5 file: {error}", _COPY) from error


def _m3p(file: Any, boxes: Any, row: int) -> Found:
    name = file["image_id"][row]
    count = int(file["num_boxes"][row]) if "num_boxes" in file else None
    if count is not None and not 0 < count <= file["features"].shape[1]:
        raise BrokenRecordError(f"num_boxes is {count}, but the file has room for {file['features'].shape[1]}")
    height, width = (float(side) for side in file["wh"][row])
    features = np.asarray(file["features"][row][:count])
    corners = relative(np.asarray(boxes[row][:count], dtype=np.float32), width, height)
    return Found(name.decode() if isinstance(name, bytes) else str(name), features, corners)


def _loaded(path: Path) -> Mapping[Any, Any]:
    """Load tensors, without running pickled code."""
    try:
        import torch
    except ImportError as error:
        raise SightlineError(f"reading Oscar's tensors needs torch: {error}", install_extra("train")) from error
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise many kinds of exceptions
        raise DataError(f"torch cannot load {path}: {error}", _COPY) from error
    if not isinstance(loaded, dict):
        raise DataError(
            f"{path}: contains a {type(loaded).__name__}, not a mapping from images to features",
            "Use a file from Oscar.",
        )
    return loaded


def _oscar_captions(path: Path) -> Mapping[Any, Any]:
    beside = path.with_name(f"{path.name.partition('_img_')[0]}_captions.pt")
    return _loaded(beside) if beside != path and beside.is_file() else {}


def _texts(captions: object, place: str, report: OnProblem) -> dict[str, tuple[str, ...]]:
    """Return the captions of an image: a list, or, in the older files, a list written as JSON."""
    if captions is None:
        return {}
    try:
        listed = json.loads(captions) if isinstance(captions, str) else captions
    except ValueError as error:
        raise BrokenRecordError(f"its captions are not JSON: {error}") from error
    texts = clean_captions(sequence(listed, "its captions"), place, report)
    return {DEFAULT_LANGUAGE: texts} if texts else {}
