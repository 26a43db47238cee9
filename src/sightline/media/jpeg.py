"""Convert images to JPEG, at full size or as thumbnails."""

import io

from PIL import Image

from sightline.errors import MediaError
from sightline.media.open import MAX_PIXELS, open_image
from sightline.media.source import ImageSource


def to_jpeg(source: ImageSource, quality: int, side: int | None = None, max_pixels: int = MAX_PIXELS) -> bytes:
    """Encode an image as JPEG bytes. side: the maximum length of the longer side, in pixels."""
    return image_to_jpeg(open_image(source, at_least=side, max_pixels=max_pixels), source.name, quality, side)


def image_to_jpeg(image: Image.Image, name: str, quality: int, side: int | None = None) -> bytes:
    """Encode an open image as JPEG bytes; the image is scaled in place."""
    if side is not None:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    made = io.BytesIO()
    try:
        image.save(made, "JPEG", quality=quality, icc_profile=image.info.get("icc_profile"))
    except (OSError, ValueError) as error:
        raise MediaError(name, f"cannot be converted to JPEG ({error})") from error
    return made.getvalue()
