"""Regions of an image found by a detector, which some models read instead of pixels.

Regions are stored as the bytes of one float32 NumPy array: [regions, dim + 4], the features and box of each region, or
[regions, dim] without boxes. Therefore, all code that handles images as bytes (sources, hashes, archives, collections)
works for regions too.
"""

import io
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array
from sightline.errors import MediaError, ModelError
from sightline.media.file_types import ARRAY, detect_type
from sightline.media.source import ImageSource

Floats = npt.NDArray[np.floating[Any]]
CORNERS = 4
"""How many numbers a stored box has: left, top, right and bottom, as fractions of the image's width and height."""
BOX_DIMS = (0, 6, 7)
_parsing = threading.Lock()  # Python 3.11 may fail if two threads parse the headers of arrays at the same time


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """How a model expects the regions of an image.

    feature_dim: the dimension of their features.
    box_dim: 6 (left, top, right, bottom, width and height: Oscar), 7 (also the area: UNITER), or 0 to omit boxes, for
        features that were published without them.
    """

    feature_dim: int = 2048
    box_dim: int = 6

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise ModelError(f"feature_dim cannot be {self.feature_dim}", "Use a number of at least 1.")
        if self.box_dim not in BOX_DIMS:
            raise ModelError(f"box_dim cannot be {self.box_dim}", "Use 6, 7, or 0 for no boxes.")

    @property
    def width(self) -> int:
        """How many numbers the model reads per region: its features, then its box."""
        return self.feature_dim + self.box_dim


def box_numbers(boxes: Float32Array, box_dim: int) -> Float32Array:
    """Extend boxes [n, 4] to [n, box_dim] with width, height and area.

    >>> box_numbers(np.array([[0.25, 0.5, 0.75, 1.0]], dtype=np.float32), 7).tolist()
    [[0.25, 0.5, 0.75, 1.0, 0.5, 0.5, 0.25]]
    """
    sides = boxes[:, 2:] - boxes[:, :2]
    return np.concatenate([boxes, sides, sides[:, :1] * sides[:, 1:]], axis=1)[:, :box_dim]


def region_bytes(features: Floats, boxes: Floats | None) -> bytes:
    """Encode the regions of an image as bytes: features [n, dim] and boxes [n, 4]."""
    both = features if boxes is None else np.concatenate([features, boxes], axis=1)
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(both, dtype=np.float32), allow_pickle=False)
    return stream.getvalue()


def to_regions(source: ImageSource, config: RegionConfig) -> Float32Array:
    """Read the regions of an image as model input: float32 [n, width]; raises a `MediaError` if that fails."""
    stored = _array(source)
    dim = config.feature_dim
    if stored.shape[1] not in (dim, dim + CORNERS):
        raise MediaError(
            source.name,
            f"has {stored.shape[1]} numbers per region, but the model expects {dim}, or {dim + CORNERS} with boxes",
            "Use regions from the detector that the model was trained with.",
        )
    if config.box_dim and stored.shape[1] == dim:
        way_out = "Use regions with boxes, or train a model without them: model.regions.box_dim = 0."
        raise MediaError(source.name, "has regions without boxes, but the model expects boxes", way_out)
    return np.concatenate([stored[:, :dim], box_numbers(stored[:, dim:], config.box_dim)], axis=1)


def _array(source: ImageSource) -> Float32Array:
    data = source.read()
    kind = detect_type(data)
    if kind is not ARRAY:
        way_out = "Detect regions first: sightline regions IMAGES --detector MODEL --out STORE"
        raise MediaError(source.name, f"is {kind.says}, but this model reads regions", way_out)
    try:
        with _parsing:
            array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise MediaError(source.name, f"is a damaged array: {error}", "Create it again.") from error
    if array.ndim != 2 or array.dtype != np.float32 or not len(array) or not np.isfinite(array).all():
        raise MediaError(source.name, f"is an array of shape {array.shape} and type {array.dtype}, not regions")
    return array  # type: ignore[no-any-return]
