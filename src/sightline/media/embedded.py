"""Previews that cameras store inside a large JPEG: far smaller than the photo, and so much faster to decode.

They are the large thumbnails of a multi-picture file (CIPA DC-007, "MPF"), and the EXIF thumbnail, which in the photos
of many phones has 512 x 384 pixels.
"""

import io
from collections.abc import Iterator

from PIL import ExifTags, Image

LARGE = 4_000_000
"""Pixels of a photo that takes long to decode even at a reduced size."""

_SAME_SHAPE = 0.02  # by how much the sides may differ in proportion; cameras round to whole blocks of pixels
_SMALLER = 4  # a preview has at most this fraction of the photo's pixels
_MOST = 4  # previews to look at; cameras store one to three
_HEADER_BYTES = 1 << 18  # enough for the size of a JPEG, even behind long metadata
_EXIF_HEADER = b"Exif\x00\x00"
_THUMBNAIL_START, _THUMBNAIL_LENGTH = 0x0201, 0x0202
_MP_ENTRIES = 0xB002


def smallest_preview(photo: Image.Image, data: bytes, at_least: int) -> bytes | None:
    """Return the smallest preview of an open JPEG, not turned upright, whose short side has `at_least` pixels.

    None if there is none, or if its shape is not the photo's, as after cropping with a program that keeps the preview.
    """
    found: dict[int, memoryview] = {}
    for preview in (*_thumbnail(photo), *_large_thumbnails(photo, data)):
        width, height = _size(preview)
        is_smaller = width * height <= min(LARGE, photo.width * photo.height // _SMALLER)
        if min(width, height) >= at_least and is_smaller and _has_shape((width, height), photo.size):
            found[width * height] = preview
    return bytes(found[min(found)]) if found else None


def _thumbnail(photo: Image.Image) -> Iterator[memoryview]:
    """Yield the EXIF thumbnail."""
    directory = photo.getexif().get_ifd(ExifTags.IFD.IFD1)
    start, length = directory.get(_THUMBNAIL_START), directory.get(_THUMBNAIL_LENGTH)
    exif = photo.info.get("exif", b"").removeprefix(_EXIF_HEADER)
    if isinstance(start, int) and isinstance(length, int):
        yield memoryview(exif)[start : start + length]


def _large_thumbnails(photo: Image.Image, data: bytes) -> Iterator[memoryview]:
    """Yield the large thumbnails of a multi-picture file; its other images are photos or depth maps, not previews."""
    header = data.find(photo.info.get("mp", b""))  # offsets count from there
    for entry in getattr(photo, "mpinfo", {}).get(_MP_ENTRIES, ())[1 : 1 + _MOST]:
        if entry["Attribute"]["MPType"].startswith("Large Thumbnail"):
            start = header + entry["DataOffset"]
            yield memoryview(data)[start : start + entry["Size"]]


def _size(preview: memoryview) -> tuple[int, int]:
    """Return the width and height of a preview; zeros if it is not a JPEG."""
    from PIL import JpegImagePlugin  # already imported for the photo; searches do without it

    try:
        return JpegImagePlugin.JpegImageFile(io.BytesIO(preview[:_HEADER_BYTES])).size
    except Exception:  # parsers may raise any exception for malformed input
        return 0, 0


def _has_shape(size: tuple[int, int], whole: tuple[int, int]) -> bool:
    return abs(size[0] * whole[1] / (size[1] * whole[0]) - 1) <= _SAME_SHAPE
