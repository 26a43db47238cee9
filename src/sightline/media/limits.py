"""Limits on the cost of decoding an image, checked before any pixel is decoded.

Pillow warns about images above `PIL.Image.MAX_IMAGE_PIXELS` and refuses those above twice that. Sightline has its own
limit, set by the caller. Pillow's limit, which applies to all threads, is not changed.
"""

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from sightline.errors import MediaError

MAX_SCANS = 100
"""Maximum number of scans in a progressive JPEG. Files usually have about ten; each takes as long as a whole image."""

_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_SEQUENTIAL = (0xC0, 0xC1)  # start of a frame that is not progressive
_FIRST_FRAME, _FILLING = 0xC0, 0xFF
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # inside a scan, only the excluded bytes follow 0xff
_BYTES = {"1": 1, "L": 1, "P": 1, "LA": 4, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
_one_at_a_time = threading.RLock()


def check_pixels(name: str, size: tuple[int, int], max_pixels: int) -> None:
    """Refuse an image whose header declares more pixels than the caller allows."""
    width, height = size
    if width * height > max_pixels:
        raise too_many_pixels(name, f"{width} x {height} pixels", max_pixels)


def too_many_pixels(name: str, amount: str, max_pixels: int) -> MediaError:
    """Return the error for an image above the limit."""
    reason = f"has too many pixels: {amount}, but only {max_pixels:,} are allowed"
    return MediaError(name, reason, "Save it smaller, or leave it out.")


def check_scans(name: str, data: bytes) -> None:
    """Refuse a JPEG with so many scans that decoding would take minutes."""
    if not _has_one_scan(data) and data.count(b"\xff\xda") > MAX_SCANS and _scans(data) > MAX_SCANS:
        reason = f"is a JPEG with more than {MAX_SCANS} scans, which would take very long to decode"
        raise MediaError(name, reason, "Save it again as a plain JPEG, or leave it out.")


def _has_one_scan(data: bytes) -> bool:
    """Return whether the first scan of a JPEG is complete, so that decoders read no further.

    Nearly all photos are such files, and the segments before that scan are quick to skip. If there is anything unusual
    among those segments, the result is False, because a decoder might interpret it differently.
    """
    at, components = 2, -1
    while data[at : at + 1] == b"\xff" and len(data) > at + 9:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker < _FIRST_FRAME or marker == _FILLING or length < 2:
            return False
        if marker in _SEQUENTIAL:
            components = data[at + 9]
        elif marker == _START_OF_SCAN:
            return data[at + 4] == components
        at += 2 + length
    return False


def _scans(data: bytes) -> int:
    """Return the number of scans of the first image in a JPEG file; counting stops just above the limit."""
    count, at = 0, 2
    while count <= MAX_SCANS and (found := _NEXT_MARKER.search(data, at)):
        marker, at = data[found.start() + 1], found.end()
        if marker == _END_OF_IMAGE:
            break
        count += marker == _START_OF_SCAN
        at += int.from_bytes(data[at : at + 2], "big")
    return count


def decoded_bytes(mode: str, size: tuple[int, int]) -> int:
    """Return the memory that Pillow needs to decode an image of this mode and size and to convert it to RGB."""
    width, height = size
    copies = 0 if mode == "RGB" else 4
    return width * height * (_BYTES.get(mode, 4) + copies)


def pillow_would_warn(size: tuple[int, int]) -> bool:
    """Return whether an image is large enough for Pillow to warn about it while loading."""
    return Image.MAX_IMAGE_PIXELS is not None and size[0] * size[1] > Image.MAX_IMAGE_PIXELS


@contextmanager
def warnings_ignored() -> Iterator[None]:
    """Suppress warnings in all threads, as Python's filters are global; only for images that need it, one at a time."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def gif_size(data: bytes) -> tuple[int, int]:
    """Return the size of a GIF's canvas, enlarged to include the first frame, which may extend beyond the canvas.

    Pillow computes this size only while opening the file, and would warn about it before the caller can check it.
    """
    width, height = (int.from_bytes(data[at : at + 2], "little") for at in (6, 8))
    at = 13
    if len(data) > 10 and data[10] & 0x80:
        at += 3 << ((data[10] & 7) + 1)
    while data[at : at + 1] == b"!":
        at += 2
        while at < len(data) and data[at]:
            at += data[at] + 1
        at += 1
    if data[at : at + 1] == b"," and len(data) >= at + 9:
        left, top, across, down = (int.from_bytes(data[at + i : at + i + 2], "little") for i in (1, 3, 5, 7))
        return max(width, left + across), max(height, top + down)
    return width, height
