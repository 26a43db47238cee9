"""Images: find them, open them safely, and resize and normalise them for a model."""

from sightline.media.file_types import IMAGE_SUFFIXES
from sightline.media.image_like import ImageLike, image_source
from sightline.media.inputs import ImageInput, blank, check_batch, require_pixels, split_padding, stack_inputs, to_input
from sightline.media.loader import Loaded, load_pixels
from sightline.media.open import open_image
from sightline.media.pixels import Preprocess, fit, normalise, to_pixels
from sightline.media.regions import RegionConfig
from sightline.media.scan import find_images
from sightline.media.source import ImageBytes, ImageFile, ImageSlice, ImageSource

__all__ = [
    "IMAGE_SUFFIXES",
    "ImageBytes",
    "ImageFile",
    "ImageInput",
    "ImageLike",
    "ImageSlice",
    "ImageSource",
    "Loaded",
    "Preprocess",
    "RegionConfig",
    "blank",
    "check_batch",
    "find_images",
    "fit",
    "image_source",
    "load_pixels",
    "normalise",
    "open_image",
    "require_pixels",
    "split_padding",
    "stack_inputs",
    "to_input",
    "to_pixels",
]
