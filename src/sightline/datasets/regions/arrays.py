"""Features as NumPy files: an `.npz` per image, or an `.npy` per split as published for VSE++ and SCAN."""

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.datasets.fields import clean_captions, decoded
from sightline.datasets.files import entries_of, numbered_lines
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem
from sightline.datasets.regions.detections import Floats, Found, relative
from sightline.datasets.splits import canonical_split
from sightline.errors import DataError

_Array = npt.NDArray[Any]
_IMAGES, _CAPTIONS, _IDS = "_ims.npy", "_caps.txt", "_ids.txt"
_REPEATED = 5  # VSE++ repeats the features of an image for each of its five captions
_FAULTS = (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)  # all that a damaged file may raise


def read_npz_folder(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read a folder with an `.npz` file per image; see `found_in_arrays`."""
    for file in entries_of(path):
        if file.suffix == ".npz":
            try:
                yield found_in_npz(file.stem, file.read_bytes())
            except OSError as error:
                report(Problem(str(file), f"cannot be read: {error.strerror or error}"))
            except BrokenRecordError as error:
                report(Problem(str(file), str(error)))


def found_in_npz(name: str, data: bytes) -> Found:
    """Read an `.npz` from its bytes. Pickled arrays, such as class names in some files, are ignored."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            wanted = {"features", "norm_bb", "conf", "x", "feat", "bbox", "image_w", "image_h"}
            return found_in_arrays(name, {key: arrays[key] for key in arrays.files if key in wanted})
    except _FAULTS as error:
        raise BrokenRecordError(f"damaged .npz file: {error}") from error


def found_in_arrays(name: str, arrays: Mapping[str, _Array]) -> Found:
    """Detect the layout by the names of the arrays.

    UNITER: features, norm_bb (six numbers, relative to the image size), conf. Bottom-up attention in torch: x, bbox (in
    pixels), image_w, image_h; in some files x is transposed. For captioning: only feat.
    """
    features = next((arrays[key] for key in ("features", "x", "feat") if key in arrays), None)
    if features is None:
        raise BrokenRecordError(f"no array named features, x or feat (found: {', '.join(arrays) or 'none'})")
    if "norm_bb" in arrays:
        corners = arrays["norm_bb"]
        if corners.ndim != 2:
            raise BrokenRecordError(f"norm_bb has shape {list(corners.shape)}, not [regions, 6]")
        return Found(name, features, corners[:, :4], arrays["conf"].reshape(-1) if "conf" in arrays else None)
    if "bbox" not in arrays:
        return Found(name, features)
    boxes = arrays["bbox"]
    if boxes.ndim != 2:
        raise BrokenRecordError(f"bbox has shape {list(boxes.shape)}, not [regions, 4]")
    if missing := sorted({"image_w", "image_h"} - arrays.keys()):
        raise BrokenRecordError(f"has bbox, but no {' or '.join(missing)}")
    if features.ndim == 2 and features.shape[0] != len(boxes) == features.shape[1]:
        features = features.T
    return Found(name, features, relative(boxes, float(arrays["image_w"]), float(arrays["image_h"])))


def read_precomputed(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read a folder of `train_ims.npy`, `train_caps.txt` and the like: features without boxes, and captions.

    Features are [images, regions, dim], or [images, dim] with one vector per image. Captions are one per line, five
    for each image, in the order of the images; if there are as many features as captions, each image occurs five
    times. Names come from `train_ids.txt` if it exists, and are otherwise made from the split and the index.
    """
    for file in entries_of(path):
        if file.name.endswith(_IMAGES):
            yield from _of_split(file, report)


def is_precomputed(path: Path) -> bool:
    """Return whether a folder has the layout of VSE++ or SCAN, judging by its files."""
    return any(file.name.endswith(_IMAGES) for file in entries_of(path))


def _of_split(file: Path, report: OnProblem) -> Iterator[Found]:
    features = _mapped(file)
    split = file.name.removesuffix(_IMAGES)
    captions = _lines(file.with_name(split + _CAPTIONS))
    ids = _lines(file.with_name(split + _IDS))
    if captions and len(captions) % _REPEATED:
        raise DataError(f"{file.with_name(split + _CAPTIONS)}: has {len(captions)} captions, not five for each image")
    step = _REPEATED if captions and len(captions) == len(features) else 1
    images = len(features) // step
    if captions and len(captions) != _REPEATED * images:
        raise DataError(
            f"{file}: has {len(features)} images, but {split + _CAPTIONS} has {len(captions)} captions",
            "There must be five captions for each image, or each feature must occur five times.",
        )
    if ids and len(ids) not in (images, len(features)):
        raise DataError(f"{file}: has {images} images, but {split + _IDS} has {len(ids)} ids")
    for number in range(images):
        place = f"{file}:{number * step}"
        name = decoded(ids[number * (len(ids) // images)]).strip() if ids else f"{split}-{number:06d}"
        own = captions[_REPEATED * number : _REPEATED * (number + 1)]
        try:
            texts = clean_captions([decoded(line) for line in own], place, report)
            found = np.atleast_2d(np.array(features[number * step]))
            if step > 1 and not np.array_equal(found, np.atleast_2d(features[(number + 1) * step - 1])):
                raise BrokenRecordError("the five features of the image differ")
            yield Found(name, found, captions={DEFAULT_LANGUAGE: texts} if texts else {}, split=canonical_split(split))
        except BrokenRecordError as error:
            report(Problem(place, str(error)))


def _mapped(file: Path) -> Floats:
    try:
        features: Floats = np.load(file, mmap_mode="r", allow_pickle=False)
    except _FAULTS as error:
        raise DataError(f"{file}: damaged .npy file: {error}", "Copy or download it again.") from error
    if features.ndim not in (2, 3) or not np.issubdtype(features.dtype, np.floating):
        raise DataError(
            f"{file}: is {features.dtype} with shape {list(features.shape)}, not floats [images, regions, dim]"
        )
    return features


def _lines(file: Path) -> list[bytes]:
    return [line for _, line in numbered_lines(file)] if file.is_file() else []
