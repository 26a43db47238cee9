"""Images as JPEG files, at their own size or as thumbnails."""

import io

from PIL import Image

from sightline.errors import MediaError
from sightline.media.open import MAX_PIXELS, open_image
from sightline.media.source import ImageSource


def to_jpeg(source: ImageSource, quality: int, side: int | None = None, max_pixels: int = MAX_PIXELS) -> bytes:
    """The bytes of a JPEG of an image. side: the most pixels of its longer side."""
    return image_to_jpeg(open_image(source, at_least=side, max_pixels=max_pixels), source.name, quality, side)


def image_to_jpeg(image: Image.Image, name: str, quality: int, side: int | None = None) -> bytes:
    """The bytes of a JPEG of an open image, which is scaled in place."""
    if side is not None:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    made = io.BytesIO()
    try:
        image.save(made, "JPEG", quality=quality)
    except (OSError, ValueError) as error:
        raise MediaError(name, f"cannot be made a JPEG ({error})") from error
    return made.getvalue()
