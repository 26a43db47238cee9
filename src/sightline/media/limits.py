"""How many pixels a picture will take, known from its header, and Pillow's own opinion on that kept in its place.

Pillow warns about pictures above `PIL.Image.MAX_IMAGE_PIXELS` and refuses those above twice that. Sightline has a
limit of its own, which the caller chooses, and leaves Pillow's as the application around it has set it: changing it
for the length of a call would change it for every other thread too.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from sightline.errors import MediaError

_one_at_a_time = threading.RLock()


def check_pixels(name: str, size: tuple[int, int], max_pixels: int) -> None:
    """Refuse a picture whose header promises more pixels than the caller allows, before any is decoded."""
    width, height = size
    if width * height > max_pixels:
        raise too_many_pixels(name, f"{width} x {height} pixels", max_pixels)


def too_many_pixels(name: str, amount: str, max_pixels: int) -> MediaError:
    """Say what is wrong with a picture above the limit, whoever noticed it."""
    reason = f"has too many pixels: {amount}, where {max_pixels:,} are allowed"
    return MediaError(name, reason, "Save it smaller, or raise max_pixels if you trust where it comes from.")


def pillow_would_warn(size: tuple[int, int]) -> bool:
    """Whether a picture is allowed here but large enough for Pillow to warn about while it loads."""
    return Image.MAX_IMAGE_PIXELS is not None and size[0] * size[1] > Image.MAX_IMAGE_PIXELS


@contextmanager
def warnings_ignored() -> Iterator[None]:
    """No warning of this thread or any other while this lasts, for Python keeps one list of filters for all threads.

    So it is for rare pictures only, and one at a time.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def gif_size(data: bytes) -> tuple[int, int]:
    """Measure the canvas of a GIF with its first frame, which may reach beyond it.

    Pillow measures this while it opens the file, and would warn before anybody could ask for the size.
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
