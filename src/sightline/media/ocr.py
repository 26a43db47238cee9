"""Read the text in an image, with the models in the package `rapidocr-onnxruntime`."""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from sightline.errors import MissingDecoderError
from sightline.packages import install_extra, pip

INSTALL = install_extra("ocr")
_LONGEST_SIDE = 1920  # pixels; larger images are shrunk, and their letters usually remain large enough
_DETECTED_SIDE = 960  # pixels; lines are detected at this size, but recognised at full size
_LEAST_SCORE = 0.6
_DIGITS = 4

Corners = tuple[tuple[float, float], ...]


class TextLine(NamedTuple):
    """A line of text, and its four corners, clockwise from the top left, as fractions of the image's sides."""

    text: str
    corners: Corners


def is_installed() -> bool:
    """Return whether the packages of the extra `ocr` are installed."""
    return all(find_spec(name) for name in ("rapidocr_onnxruntime", "cv2"))


def read_lines(image: Image.Image) -> list[TextLine]:
    """Return the lines of text in an RGB image, from top to bottom; empty if it has none."""
    small = image.copy()
    small.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    found, _ = _reader()(np.asarray(small)[:, :, ::-1].copy())
    lines = []
    for corners, text, score in found or ():
        if score >= _LEAST_SCORE and text.strip():
            shares = tuple((_share(x, small.width), _share(y, small.height)) for x, y in corners)
            lines.append(TextLine(text.strip(), shares))
    return lines


def parse_lines(data: Iterable[Any]) -> list[TextLine]:
    """Parse lines from JSON; raises a ValueError or TypeError if they are malformed."""
    lines = [TextLine(str(text), tuple((float(x), float(y)) for x, y in corners)) for text, corners in data]
    if any(len(line.corners) != 4 for line in lines):
        raise ValueError("a line of text must have four corners")
    return lines


def _share(place: float, side: int) -> float:
    return round(min(1.0, max(0.0, place / side)), _DIGITS)


@cache
def _reader() -> Any:
    """Return the detector and recogniser; they use a single thread, because searches run at the same time."""
    try:
        from rapidocr_onnxruntime import RapidOCR
    except ImportError as error:  # opencv-python also raises it on machines without a display
        way_out = INSTALL if not is_installed() else f"{pip()} install --force-reinstall opencv-python-headless"
        raise MissingDecoderError("text in images", f"cannot be read: {error}", way_out) from error
    return RapidOCR(
        intra_op_num_threads=1,
        inter_op_num_threads=1,
        det_limit_side_len=_DETECTED_SIDE,
        det_limit_type="max",
        use_cls=False,  # upside-down text is rare, and rotated photos have already been turned upright
    )
