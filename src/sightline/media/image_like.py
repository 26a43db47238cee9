"""Types accepted as images: a path, the bytes of a file, an open file, a PIL image, an array, or any `ImageSource`."""

import io
import os
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.errors import MediaError
from sightline.media.open import upright_rgb
from sightline.media.source import ImageBytes, ImageFile, ImageSource

ImageLike: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | npt.NDArray[Any] | ImageSource
)
"""Anything accepted as an image.

Bytes are those of an image file. A binary file is read from its beginning. An array is uint8 [height, width], or
[height, width, n] with 3 or 4 channels.
"""

_NAME = "the image"


def image_source(image: ImageLike) -> ImageSource:
    """Convert anything accepted as an image to an `ImageSource`.

    >>> image_source("cat.jpg").name
    'cat.jpg'
    >>> image_source(np.zeros((2, 3), dtype=np.uint8)).name
    'the image'
    """
    if isinstance(image, str | os.PathLike):
        return ImageFile(Path(image))
    if isinstance(image, bytes | bytearray | memoryview):
        return ImageBytes(_NAME, bytes(image))
    if isinstance(image, np.ndarray):
        return _encoded(_from_array(image))
    if isinstance(image, Image.Image):
        return _encoded(image)
    if hasattr(image, "seekable"):
        return _from_file(image)
    if not hasattr(image, "read") or not hasattr(image, "name"):
        raise MediaError(
            _NAME,
            f"is a {type(image).__name__}",
            "Pass a path, bytes, a binary file, a PIL image or an array of uint8.",
        )
    return image


def _from_array(array: npt.NDArray[Any]) -> Image.Image:
    is_grey, is_colour = array.ndim == 2, array.ndim == 3 and array.shape[-1] in (3, 4)
    if array.dtype != np.uint8 or not (is_grey or is_colour) or not array.size:
        raise MediaError(
            _NAME,
            f"is an array of type {array.dtype} and shape {list(array.shape)}",
            "Pass uint8 [height, width, 3].",
        )
    return Image.fromarray(array)


def _from_file(file: Any) -> ImageBytes:
    """Read an open file from its beginning, even if it was read or written before."""
    given = getattr(file, "name", None)
    name = given if isinstance(given, str) else _NAME
    if isinstance(file, io.TextIOBase):
        raise MediaError(name, "was opened as text", "Open it in binary mode: open(path, 'rb')")
    try:
        if file.seekable():
            file.seek(0)
        return ImageBytes(name, file.read())
    except (OSError, ValueError) as error:  # ValueError: it is closed
        raise MediaError(name, f"cannot be read: {error}", "Pass a file that is open for reading.") from error


def _encoded(image: Image.Image) -> ImageBytes:
    file = io.BytesIO()
    upright_rgb(image, _NAME).save(file, "PNG", compress_level=1)
    return ImageBytes(_NAME, file.getvalue())
