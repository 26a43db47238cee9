"""Open images of any format, upright and in RGB, or raise an error that says what is wrong."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from typing import IO

from PIL import ExifTags, Image, ImageFile

from sightline.errors import MediaError, MissingDecoderError
from sightline.media.colour import to_rgb
from sightline.media.diagnosis import CONVERT, COPY_AGAIN, diagnose, is_cut_off
from sightline.media.embedded import LARGE, smallest_preview
from sightline.media.file_types import RAW, FileType, detect_type
from sightline.media.frame import FramedImage
from sightline.media.limits import (
    check_pixels,
    check_scans,
    decoded_bytes,
    gif_size,
    pillow_would_warn,
    warnings_ignored,
)
from sightline.media.memory import decoding
from sightline.media.raw import camera_exif, preview
from sightline.media.source import ImageSource
from sightline.packages import install_extra

MAX_PIXELS = 256_000_000
_JPEG = ("JPEG", "MPO")

_Decoder = Callable[[IO[bytes], str], ImageFile.ImageFile]


def open_image(source: ImageSource, *, at_least: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open an image as RGB, upright, fully decoded and without metadata; only the first frame of an animation.

    at_least: for callers that shrink the image. A JPEG is then decoded at 1/2, 1/4 or 1/8 of its size, several
        times faster, as long as its short side keeps `at_least` pixels.
    max_pixels: an image whose header declares more is refused before it is decoded.

    Raises a `MediaError` if the image is missing, empty, truncated, not an image, broken, too large, or in a format
    that needs another package.
    """
    with decoding.scope():
        return open_framed(source, at_least, max_pixels).image


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Properties of an image from its header. progressive: whether a JPEG is stored in several scans."""

    format: str
    mode: str
    size: tuple[int, int]
    progressive: bool


def check_image(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> ImageHeader:
    """Read an image's header; refuse files that are not images or have too many pixels, before decoding."""
    data, kind = _pillow_bytes(source.name, _bytes_of(source), max_pixels)
    decoder = _decoder(source.name, kind)
    try:
        with warnings_ignored():
            image = decoder(io.BytesIO(data), "")
    except Exception as error:  # as in open_framed
        raise diagnose(source.name, kind, data, error, max_pixels) from error
    check_pixels(source.name, image.size, max_pixels)
    return ImageHeader(image.format or "", image.mode, image.size, bool(image.info.get("progressive")))


def read_exif(source: ImageSource) -> Image.Exif:
    """Read the EXIF data of an image without decoding its pixels; empty if there is none."""
    original = _bytes_of(source)
    data, kind = _pillow_bytes(source.name, original, MAX_PIXELS)
    decoder = _decoder(source.name, kind)
    try:
        with warnings_ignored():
            exif = decoder(io.BytesIO(data), "").getexif()
    except Exception:  # as in open_framed
        exif = Image.Exif()
    return exif if data is original else camera_exif(original, exif)


def open_framed(source: ImageSource, at_least: int | None, max_pixels: int, *, previews: bool = False) -> FramedImage:
    """Open an image like `open_image`; also returns its full size, and the box within the pixels that it fills.

    previews: of a large JPEG, decode the preview that the camera stored in it, if its short side has `at_least` pixels.
    """
    if at_least is not None and at_least < 1:
        raise ValueError(f"at_least={at_least}: use a number of pixels, or None for full size")
    original = _bytes_of(source)
    data, kind = _pillow_bytes(source.name, original, max_pixels)
    decoder = _decoder(source.name, kind)
    try:
        with decoding.scope():
            try:
                framed = _decode(source.name, decoder, data, at_least, max_pixels, previews)
            except Warning:
                # Pillow warns about odd metadata in valid images, which the application may turn into errors.
                with warnings_ignored():
                    framed = _decode(source.name, decoder, data, at_least, max_pixels, previews)
            return framed if data is original else replace(framed, exif=camera_exif(original, framed.exif))
    except MediaError:
        raise
    except Exception as error:
        # Decoders raise all kinds of exceptions on malformed data.
        raise diagnose(source.name, kind, data, error, max_pixels) from error


def upright_rgb(image: Image.Image, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Return a copy of an image that Pillow has opened, as `open_image` returns the image of a file."""
    check_pixels(name, image.size, max_pixels)
    if not all(image.size):
        raise MediaError(name, f"has no pixels: {image.width} x {image.height}", "Pass another image.")
    try:
        image.load()
        return FramedImage.whole(to_rgb(image)).upright(_orientation(_exif(image))).image
    except Exception as error:  # as in open_framed
        raise MediaError(name, f"cannot be read: {error}", "Pass an image that is complete and not closed.") from error


def _bytes_of(source: ImageSource) -> bytes:
    data = source.read()
    if not data:
        raise MediaError(source.name, "is empty (0 bytes)", COPY_AGAIN)
    return data


def _pillow_bytes(name: str, data: bytes, max_pixels: int) -> tuple[bytes, FileType]:
    """Return the bytes for Pillow to decode, and their type: the preview of a RAW photo, or the file itself."""
    kind = detect_type(data)
    if kind is RAW:
        data = preview(name, data, max_pixels)
        kind = detect_type(data)
    return data, kind


def _decoder(name: str, kind: FileType) -> _Decoder:
    """Return the Pillow plugin for a file type, imported only when needed."""
    if kind.decoder is None:
        raise MediaError(name, f"cannot be opened as an image: it looks like {kind.says}", CONVERT)
    try:
        plugin = import_module(kind.plugin or "")
        if kind.decoder == "HEIF":
            plugin.register_heif_opener()
        factory: _Decoder = Image.OPEN[kind.decoder][0]
    except (ImportError, KeyError) as error:
        needs_extra = kind.decoder == "HEIF"
        way_out = install_extra("heic") if needs_extra else "pip install --upgrade pillow"
        raise MissingDecoderError(name, f"is {kind.says}, which needs another package: {way_out}", way_out) from error
    return factory


def _decode(
    name: str, decoder: _Decoder, data: bytes, at_least: int | None, max_pixels: int, previews: bool
) -> FramedImage:
    image = _opened(name, decoder, data, max_pixels)
    small = _preview(name, decoder, image, data, at_least, max_pixels) if previews and at_least else None
    framed = small or _loaded(image, at_least)
    return framed.upright(_orientation(framed.exif))


def _opened(name: str, decoder: _Decoder, data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    """Read the header of an image and check the limits, before anything is decoded.

    The plugin is called directly because `Image.open` would also apply Pillow's own pixel limit.
    """
    with _quiet_if_huge(gif_size(data) if data.startswith(b"GIF8") else (0, 0)):
        image = decoder(io.BytesIO(data), "")
    check_pixels(name, image.size, max_pixels)
    if image.format in _JPEG:
        check_scans(name, data)
        image.decodermaxblock = len(data)  # libjpeg decodes the end of each block more slowly
    if is_cut_off(image.format or "", data):
        raise EOFError("its end marker is missing")
    return image


def _loaded(image: ImageFile.ImageFile, at_least: int | None, *, is_preview: bool = False) -> FramedImage:
    """Decode an open image; it is not turned upright.

    is_preview: no memory is reserved, because it is small, and because the photo may have to be decoded after it.
        Threads that wait for more memory than they hold could wait for each other forever.
    """
    sides = image.size
    scaled = image.draft(None, (at_least, at_least)) if at_least is not None and image.format in _JPEG else None
    if not is_preview:
        decoding.reserve(decoded_bytes(image.mode, image.size))
    with _quiet_if_huge(sides):
        image.load()
    exif = _exif(image)
    rgb = to_rgb(image, may_reuse=not exif)
    framed = FramedImage(rgb, sides, scaled[1]) if scaled else FramedImage.whole(rgb)
    return replace(framed, exif=exif)


def _preview(
    name: str, decoder: _Decoder, photo: ImageFile.ImageFile, data: bytes, at_least: int, max_pixels: int
) -> FramedImage | None:
    """Decode a preview in a large JPEG instead of the photo itself; None if there is none, or if it is broken."""
    if photo.format not in _JPEG or photo.width * photo.height < LARGE:
        return None
    try:
        found = smallest_preview(photo, data, at_least)
        if found is None:
            return None
        framed = _loaded(_opened(name, decoder, found, max_pixels), at_least, is_preview=True)
    except Exception:  # as in open_framed; the photo itself may be intact
        return None
    return replace(framed, sides=photo.size, exif=_exif(photo))


def _quiet_if_huge(size: tuple[int, int]) -> AbstractContextManager[None]:
    """Ignore Pillow's warning about large images, because the caller's limit applies."""
    return warnings_ignored() if pillow_would_warn(size) else nullcontext()


def _exif(image: Image.Image) -> Image.Exif:
    """Return the EXIF data of a loaded image, which PNG may store at the end; empty if broken."""
    try:
        return image.getexif()
    except Warning:
        raise
    except Exception:
        return Image.Exif()


def _orientation(exif: Image.Exif) -> int:
    """Return the EXIF orientation."""
    try:
        orientation = exif.get(ExifTags.Base.Orientation)
    except Warning:
        raise
    except Exception:
        return 1
    return orientation if isinstance(orientation, int) else 1
