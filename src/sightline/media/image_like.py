"""Types accepted as images: a path, the bytes of a file, a PIL image, an array, or any `ImageSource`."""

import io
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from sightline.errors import MediaError
from sightline.media.source import ImageBytes, ImageFile, ImageSource

ImageLike: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | npt.NDArray[Any] | ImageSource
"""Anything accepted as an image; an array is uint8 [height, width], or [height, width, n] with 3 or 4 channels."""

_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}


def image_source(image: ImageLike) -> ImageSource:
    """Convert anything accepted as an image to an `ImageSource`.

    >>> image_source("cat.jpg").name
    'cat.jpg'
    >>> image_source(np.zeros((2, 3), dtype=np.uint8)).name
    'the image'
    """
    if isinstance(image, str | os.PathLike):
        return ImageFile(Path(image))
    if isinstance(image, bytes):
        return ImageBytes("the image", image)
    if isinstance(image, np.ndarray):
        return _encoded(_from_array(image))
    if isinstance(image, Image.Image):
        return _encoded(ImageOps.exif_transpose(image))
    if not hasattr(image, "read") or not hasattr(image, "name"):
        raise MediaError(
            "the image", f"is a {type(image).__name__}", "Pass a path, bytes, a PIL image or an array of uint8."
        )
    return image


def _from_array(array: npt.NDArray[Any]) -> Image.Image:
    is_grey, is_colour = array.ndim == 2, array.ndim == 3 and array.shape[-1] in (3, 4)
    if array.dtype != np.uint8 or not (is_grey or is_colour) or not array.size:
        raise MediaError(
            "the image",
            f"is an array of type {array.dtype} and shape {list(array.shape)}",
            "Pass uint8 [height, width, 3].",
        )
    return Image.fromarray(array)


def _encoded(image: Image.Image) -> ImageBytes:
    file = io.BytesIO()
    (image if image.mode in _PNG_MODES else image.convert("RGB")).save(file, "PNG", compress_level=1)
    return ImageBytes("the image", file.getvalue())
