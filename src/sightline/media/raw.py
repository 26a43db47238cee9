"""RAW photos: the preview that the camera embedded, or else the photo itself at half size (extra `raw`)."""

import io
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from sightline.errors import MediaError, MissingDecoderError
from sightline.media.limits import check_pixels
from sightline.packages import install_extra

INSTALL = install_extra("raw")
_SMALL = 512  # pixels; smaller previews (by long side) are used only if at least half as large as the photo
_QUALITY = 92
_ORIENTATIONS = {3: 3, 5: 8, 6: 6}  # from LibRaw's orientation codes to those of EXIF


def is_installed() -> bool:
    """Return whether the package of the extra `raw` is installed."""
    return find_spec("rawpy") is not None


def preview(name: str, data: bytes, max_pixels: int) -> bytes:
    """Return a RAW photo as a JPEG with the same orientation in its EXIF data."""
    try:
        import rawpy
    except ImportError as error:
        raise MissingDecoderError(name, f"is a RAW photo, which needs another package: {INSTALL}", INSTALL) from error
    try:
        with rawpy.imread(io.BytesIO(data)) as raw:
            return _embedded(rawpy, raw) or _developed(name, raw, max_pixels)
    except (rawpy.LibRawError, ValueError, MemoryError) as error:
        said = error.args[0] if error.args else type(error).__name__
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        reason = f"is a RAW photo that is damaged or of an unsupported type ({said})"
        raise MediaError(name, reason, "Save it as JPEG or DNG, or leave it out.") from error


def camera_exif(data: bytes, preview: Image.Exif) -> Image.Exif:
    """Return the EXIF data of a RAW photo: its own if it is a kind of TIFF, or else that of its preview."""
    exif = Image.Exif()
    try:
        exif.load(data)
        if exif.get_ifd(ExifTags.IFD.Exif):
            return exif
    except Exception:  # parsers may raise any exception for malformed input
        exif = Image.Exif()
    details, time = preview.get_ifd(ExifTags.IFD.Exif), preview.get(ExifTags.Base.DateTime)
    if ExifTags.Base.DateTimeOriginal not in details and time:  # LibRaw writes the photo's time to DateTime
        details[ExifTags.Base.DateTimeOriginal] = time
    return preview


def _embedded(rawpy: Any, raw: Any) -> bytes | None:
    """Return the embedded preview; None if there is none of a useful size."""
    try:
        found = raw.extract_thumb()
        if found.format == rawpy.ThumbFormat.JPEG:
            image: Image.Image = Image.open(io.BytesIO(found.data), formats=["JPEG"])
        else:
            image = Image.fromarray(found.data)
    except (rawpy.LibRawNonFatalError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    if max(image.size) < min(_SMALL, max(raw.sizes.iwidth, raw.sizes.iheight) // 2):
        return None
    exif = image.getexif()
    turned = _ORIENTATIONS.get(raw.sizes.flip)
    if found.format == rawpy.ThumbFormat.JPEG and (ExifTags.Base.Orientation in exif or not turned):
        return bytes(found.data)
    if turned:
        exif[ExifTags.Base.Orientation] = turned
    return _jpeg(image, exif)


def _developed(name: str, raw: Any, max_pixels: int) -> bytes:
    """Develop the photo itself, upright, at half its width and height."""
    check_pixels(name, (raw.sizes.raw_width, raw.sizes.raw_height), max_pixels)
    return _jpeg(Image.fromarray(np.asarray(raw.postprocess(half_size=True, use_camera_wb=True))), Image.Exif())


def _jpeg(image: Image.Image, exif: Image.Exif) -> bytes:
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=_QUALITY, exif=exif)
    return file.getvalue()
