"""Convert every colour mode to 8-bit RGB."""

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

_WHITE = (255, 255, 255, 255)
_USUAL_RANGES = (1, 255, 65535)
_LARGEST_PROFILE = 16 << 10  # bytes
_STRIP = 1 << 20  # pixels blended with white at a time
_REUSABLE = ("JPEG", "PNG", "WEBP", "BMP")  # formats whose metadata is entirely in `info`


def to_rgb(image: Image.Image, *, may_reuse: bool = False) -> Image.Image:
    """Convert to RGB, compositing transparent areas onto white, as a web page would show them.

    The result has no metadata, so that no caller rotates it again, except the profile of its colours (`icc_profile`).

    may_reuse: whether the image itself may be returned, stripped of its metadata; a copy would double the memory.
    """
    if may_reuse and image.mode == "RGB" and image.format in _REUSABLE and not image.has_transparency_data:
        rgb = image
    elif image.mode.startswith("I") or image.mode == "F":
        rgb = _from_deep_gray(image).convert("RGB")
    elif image.mode == "LAB":
        rgb = _from_lab(image)
    elif image.has_transparency_data:
        rgb = _over_white(image)
    else:
        rgb = image.convert("RGB")
    rgb.info = _profile(image)
    return rgb


def _profile(image: Image.Image) -> dict[str | tuple[int, int], object]:
    """Return the colour profile of an RGB image as metadata, unless it is too large to be that of a camera."""
    found = image.info.get("icc_profile") or b""
    is_rgb = image.mode in ("RGB", "RGBA", "P") and found[16:20] == b"RGB "
    return {"icc_profile": found} if is_rgb and len(found) <= _LARGEST_PROFILE else {}


def _over_white(image: Image.Image) -> Image.Image:
    """Composite an image onto white, a strip at a time: doing it all at once would need several full-size copies."""
    straight = image.convert("LA") if image.mode == "La" else image
    rgb = Image.new("RGB", image.size)
    step = max(1, _STRIP // image.width)
    for top in range(0, image.height, step):
        strip = straight.crop((0, top, image.width, min(top + step, image.height)))
        rgba = strip.convert("RGBA")
        rgb.paste(Image.alpha_composite(Image.new("RGBA", rgba.size, _WHITE), rgba).convert("RGB"), (0, top))
    return rgb


def _from_lab(image: Image.Image) -> Image.Image:
    """Convert with Pillow's colour management, because its plain conversion does not support CIE Lab."""
    from PIL import ImageCms  # imported late: Lab is rare, and not every build of Pillow has it

    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    converted = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")
    if converted is None:
        raise ValueError("the conversion from Lab failed")
    return converted


def _from_deep_gray(image: Image.Image) -> Image.Image:
    """Convert a grey image of more than 8 bits [height, width]; Pillow itself would clip values above 255 to white.

    A grey level that is marked as transparent becomes white.
    """
    values = np.asarray(image)
    gray = (values >> (_bits(image) - 8)).astype(np.uint8) if image.mode.startswith("I;16") else _scaled(values)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        gray[values == transparent] = 255
    return Image.fromarray(gray)


def _bits(image: Image.Image) -> int:
    """Return the number of bits in use; 12-bit TIFF files from scanners are read as 16 bits without scaling."""
    bits: int = getattr(image, "tag_v2", {}).get(ExifTags.Base.BitsPerSample, (16,))[0]
    return bits


def _scaled(values: npt.NDArray[np.int32] | npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Scale 32-bit values, which have no standard range, by the smallest common range that contains them all.

    Values outside all of these ranges (negative, or beyond 16 bits) are stretched from minimum to maximum. NaN and
    infinite values become black.
    """
    levels = values.astype(np.float32)
    finite = np.isfinite(levels)
    if not finite.all():
        levels[~finite] = levels.min(where=finite, initial=np.inf) if finite.any() else 0
    low, high = float(levels.min()), float(levels.max())
    white = next((white for white in _USUAL_RANGES if low >= 0 and high <= white), None)
    if white is not None:
        low, high = 0.0, float(white)
    levels[~finite] = low
    if high == low:
        return np.zeros(levels.shape, dtype=np.uint8)
    peak = max(abs(low), abs(high))  # divide first, because the difference of two large floats may overflow
    levels /= np.float32(peak)
    levels -= np.float32(low / peak)
    levels *= np.float32(255 / (high / peak - low / peak))
    return np.rint(levels, out=levels).clip(0, 255).astype(np.uint8)
