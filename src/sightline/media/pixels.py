"""Resize and normalise images for a model."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.errors import ModelError
from sightline.media.frame import Box, FramedImage
from sightline.media.memory import decoding
from sightline.media.open import MAX_PIXELS, open_framed
from sightline.media.source import ImageSource

Resize = Literal["squash", "crop", "pad"]
Interpolation = Literal["bicubic", "bilinear"]
Colour = tuple[float, float, float]

_TINY = 16  # pixels; an image with a side shorter than this counts as an icon
_COARSE = 32  # cells per side of the grid whose colours are compared
_SAMPLED = (16, 8, 24)  # rows of that grid; if the cells of one of them differ, the others need not be compared
_SAME_COLOUR = 6  # maximum difference, in grey levels, between cells of an image of one colour
_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
_RULES = ("squash", "crop", "pad")
_LARGEST_SIZE = 8192


@dataclass(frozen=True, slots=True)
class Preprocess:
    """How to resize and normalise images for a model.

    size: side of the square in pixels.
    resize: `squash` scales both sides to `size`; `crop` scales the short side and keeps the middle; `pad` scales the
        long side and fills the rest with the mean colour, which normalises to zero.
    mean, std: those of red, green and blue, on a scale of 0 to 1.
    interpolation: how pixels are interpolated when an image is resized.
    short: with `crop`, scale the short side to this if it is larger than `size`, so that all edges are cropped.
    decode_at_least: pixels that the short side of a large JPEG keeps when it is decoded at a reduced size; by default
        twice as many as it is resized to. With fewer, decoding is faster, but the decoder's filter blurs more.
    previews: whether to read, instead of a large JPEG, the preview that the camera stored in it, if that has enough
        pixels.
    """

    size: int
    _: KW_ONLY
    resize: Resize = "crop"
    mean: Colour
    std: Colour
    interpolation: Interpolation = "bicubic"
    short: int | None = None
    decode_at_least: int | None = None
    previews: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size <= _LARGEST_SIZE:
            raise ModelError(
                f"image size cannot be {self.size!r}", f"Use a whole number of pixels from 1 to {_LARGEST_SIZE}."
            )
        if self.resize not in _RULES:
            raise ModelError(f"image resize rule cannot be {self.resize!r}", f"Choose one of {', '.join(_RULES)}.")
        if self.interpolation not in _FILTERS:
            raise ModelError(
                f"image interpolation cannot be {self.interpolation!r}", f"Choose one of {', '.join(_FILTERS)}."
            )
        if self.short is not None and (self.resize != "crop" or self.short < self.size):
            raise ModelError(
                f'short side cannot be {self.short} pixels with resize = "{self.resize}" and size = {self.size}',
                'Use it only with resize = "crop", and make it at least as large as size.',
            )
        if self.decode_at_least is not None and self.decode_at_least < (self.short or self.size):
            raise ModelError(
                f"decode_at_least cannot be {self.decode_at_least} for an image of {self.short or self.size} pixels",
                "Use at least as many pixels as the image has after resizing.",
            )
        object.__setattr__(self, "mean", _colour("mean", self.mean, positive=False))
        object.__setattr__(self, "std", _colour("std", self.std, positive=True))


def _colour(field: str, values: object, *, positive: bool) -> Colour:
    """Convert three finite numbers to a tuple."""
    try:
        red, green, blue = (float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ModelError(f"image {field} cannot be {values!r}", "Use three numbers: red, green and blue.") from error
    if not all(math.isfinite(value) and (value > 0 or not positive) for value in (red, green, blue)):
        raise ModelError(
            f"image {field} cannot be {values!r}", f"Use three {'positive ' if positive else ''}finite numbers."
        )
    return red, green, blue


def fit(image: Image.Image, preprocess: Preprocess) -> npt.NDArray[np.uint8]:
    """Resize an image to the model's square: uint8 [size, size, 3].

    `crop` equals CLIP's Resize and CenterCrop, with their rounding, but resamples only the part that is kept: a
    panorama a thousand times as wide as it is high costs no more than a square.
    """
    return _fit(FramedImage.whole(image if image.mode == "RGB" else image.convert("RGB")), preprocess)


def _fit(framed: FramedImage, preprocess: Preprocess) -> npt.NDArray[np.uint8]:
    image, size, resample = framed.image, preprocess.size, _FILTERS[preprocess.interpolation]
    if preprocess.resize == "squash":
        return np.array(image.resize((size, size), resample, box=framed.box))
    if preprocess.resize == "crop":
        return np.array(image.resize((size, size), resample, box=framed.part(_middle(framed.sides, preprocess))))
    width, height = (max(1, round(side * size / max(framed.sides))) for side in framed.sides)
    square = Image.new("RGB", (size, size), _mean_colour(preprocess.mean))
    whole = image.resize((width, height), resample, box=framed.box)
    square.paste(whole, ((size - width) // 2, (size - height) // 2))
    return np.array(square)


def _middle(sides: tuple[int, int], preprocess: Preprocess) -> Box:
    """Return the box of the original image that becomes the centre crop after resizing the short side.

    The long side is truncated to whole pixels and the margin rounded half to even, as in torchvision.
    """
    size, wanted, short = preprocess.size, preprocess.short or preprocess.size, min(sides)
    starts, ends = [], []
    for side in sides:
        resized = wanted if side == short else int(wanted * side / short)
        start = round((resized - size) / 2)
        starts.append(start * side / resized)
        ends.append((start + size) * side / resized)
    return starts[0], starts[1], ends[0], ends[1]


def _mean_colour(mean: Colour) -> tuple[int, int, int]:
    red, green, blue = (min(255, max(0, round(255 * value))) for value in mean)
    return red, green, blue


def normalise(pixels: npt.NDArray[np.uint8], preprocess: Preprocess) -> npt.NDArray[np.float32]:
    """Convert uint8 [..., size, size, 3] to contiguous float32 [..., 3, size, size]: (pixel / 255 - mean) / std.

    The channels are transposed as bytes, which takes a quarter of the memory traffic of floats.
    """
    if pixels.dtype != np.uint8 or pixels.ndim < 3 or pixels.shape[-1] != 3:
        raise ModelError(
            f"pixels have type {pixels.dtype} and shape {pixels.shape}", "Pass uint8 [..., size, size, 3]."
        )
    scale, offset = _scale_and_offset(preprocess.mean, preprocess.std)
    planes = np.ascontiguousarray(np.moveaxis(pixels, -1, -3)).astype(np.float32)
    planes *= scale
    planes += offset
    return planes


@lru_cache(maxsize=32)
def _scale_and_offset(mean: Colour, std: Colour) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Express `(pixel / 255 - mean) / std` as one multiplication and one addition: two arrays [3, 1, 1]."""
    scale = np.array([1 / (255 * s) for s in std], dtype=np.float32)
    offset = np.array([-m / s for m, s in zip(mean, std, strict=True)], dtype=np.float32)
    return scale.reshape(3, 1, 1), offset.reshape(3, 1, 1)


def to_pixels(source: ImageSource, preprocess: Preprocess, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.float32]:
    """Open, resize and normalise one image: float32 [3, size, size]; raises a `MediaError` if it cannot be opened.

    A JPEG is decoded at a reduced size if that leaves at least twice `size` on its short side. Every resize rule then
    still shrinks it to half or less, so that the rule's own filter determines the result, not the decoder's coarser
    one: the result stays within a few grey levels of that of full decoding, and takes a third of the time.
    `decode_at_least` changes that limit.
    """
    with decoding.scope():
        return framed_to_pixels(open_for_model(source, preprocess, max_pixels), preprocess)


def open_for_model(source: ImageSource, preprocess: Preprocess, max_pixels: int = MAX_PIXELS) -> FramedImage:
    """Open an image at the smallest size that `framed_to_pixels` needs."""
    least = preprocess.decode_at_least or 2 * (preprocess.short or preprocess.size)
    return open_framed(source, least, max_pixels, previews=preprocess.previews or False)


def framed_to_pixels(framed: FramedImage, preprocess: Preprocess) -> npt.NDArray[np.float32]:
    """Resize and normalise an open image: float32 [3, size, size]."""
    return normalise(_fit(framed, preprocess), preprocess)


def is_blank(framed: FramedImage) -> bool:
    """Return whether an open image is blank: tiny, or nearly the same colour everywhere."""
    if min(framed.sides) < _TINY:
        return True
    left, top, right, bottom = framed.box
    step = (bottom - top) / _COARSE
    strips = ((left, top + row * step, right, top + (row + 1) * step) for row in _SAMPLED)
    return all(_is_one_colour(framed.image, (_COARSE, 1), strip) for strip in strips) and _is_one_colour(
        framed.image, (_COARSE, _COARSE), framed.box
    )


def _is_one_colour(image: Image.Image, cells: tuple[int, int], box: Box) -> bool:
    """Return whether the mean colours of a grid of cells (across, down) in a box are nearly the same."""
    means = np.asarray(image.resize(cells, Image.Resampling.BOX, box=box), dtype=np.int16)
    return bool((means.max(axis=(0, 1)) - means.min(axis=(0, 1))).max() <= _SAME_COLOUR)
