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


def check_batch(batch: npt.ArrayLike, wanted: ImageInput) -> Float32Array:
    """Return a batch of inputs as float32; raises an error if a model that reads `wanted` cannot read it.

    An empty batch may have any shape.
    """
    given = np.asarray(batch)
    noun = "regions" if isinstance(wanted, RegionConfig) else "pixels"
    if not np.issubdtype(given.dtype, np.floating):
        raise ModelError(
            f"{noun} of type {given.dtype}: the model reads normalised float32",
            "Prepare images with `sightline.media.to_input(image, model.preprocess)`.",
        )
    if isinstance(wanted, RegionConfig):
        shape, fits = f"[batch, n, {wanted.width}]", given.ndim == 3 and given.shape[2] == wanted.width
    else:
        size = wanted.size
        shape, fits = f"[batch, 3, {size}, {size}]", given.ndim == 4 and given.shape[1:] == (3, size, size)
    if not fits and (given.ndim == 0 or len(given)):
        raise ModelError(f"{noun} of shape {list(given.shape)}: the model reads {shape}", _way_out(given, wanted))
    return np.asarray(given, dtype=np.float32)


def _way_out(given: npt.NDArray[np.floating], wanted: ImageInput) -> str:
    """Return what to do about a batch of the wrong shape."""
    if isinstance(wanted, Preprocess):
        size = wanted.size
        if given.shape[1:] == (size, size, 3):
            return "Put the channels first: pixels.transpose(0, 3, 1, 2)."
        if given.shape == (3, size, size):
            return "For one image, pass pixels[None]."
    return "Prepare images with `sightline.media.to_input(image, model.preprocess)`."


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
