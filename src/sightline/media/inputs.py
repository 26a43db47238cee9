"""Inputs for image models: pixels, or regions found by a detector."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array
from sightline.errors import ModelError
from sightline.media.open import MAX_PIXELS
from sightline.media.pixels import Preprocess, to_pixels
from sightline.media.regions import RegionConfig, to_regions
from sightline.media.source import ImageSource, PreparedImage

ImageInput: TypeAlias = Preprocess | RegionConfig
"""The form in which a model expects its images."""


def to_input(source: ImageSource, wanted: ImageInput, max_pixels: int = MAX_PIXELS) -> Float32Array:
    """Read one image as model input: pixels [3, size, size], or regions [n, width]."""
    if isinstance(wanted, RegionConfig):
        return to_regions(source, wanted)
    if isinstance(source, PreparedImage):
        return source.pixels
    return to_pixels(source, wanted, max_pixels)


def stack_inputs(images: Sequence[Float32Array]) -> Float32Array:
    """Stack inputs: pixels [batch, 3, size, size], or regions [batch, most regions, width], padded with NaN.

    >>> one, two = np.zeros((1, 3), dtype=np.float32), np.ones((2, 3), dtype=np.float32)
    >>> stack_inputs([one, two])[:, :, 0].tolist()
    [[0.0, nan], [1.0, 1.0]]
    """
    if images[0].ndim == 3:
        return np.stack(images)
    batch = np.full((len(images), max(map(len, images)), images[0].shape[1]), np.nan, dtype=np.float32)
    for row, image in zip(batch, images, strict=True):
        row[: len(image)] = image
    return batch


def split_padding(batch: Float32Array) -> tuple[Float32Array, npt.NDArray[np.bool_]]:
    """Replace the padding of a batch of regions with zeros [batch, n, width]; also returns the mask [batch, n]."""
    mask = ~np.isnan(batch[:, :, 0])
    return np.where(mask[:, :, None], batch, np.float32(0)), mask


def blank(wanted: ImageInput) -> Float32Array:
    """Return a batch of one empty input."""
    if isinstance(wanted, RegionConfig):
        return np.zeros((1, 1, wanted.width), dtype=np.float32)
    return np.zeros((1, 3, wanted.size, wanted.size), dtype=np.float32)


def require_pixels(wanted: ImageInput) -> Preprocess:
    """Raise an error for a model that does not read pixels."""
    if isinstance(wanted, RegionConfig):
        raise ModelError("this model reads regions, but pixels are needed here", "Choose another model.")
    return wanted
