"""Pictures coming in: find them, open them safely, bring them to the size and range a model reads."""

from sightline.media.inputs import ImageInput, blank, in_a_batch, pixels_wanted, to_input, without_padding
from sightline.media.loader import Loaded, load_pixels
from sightline.media.open import open_image
from sightline.media.pixels import Preprocess, fit, normalise, to_pixels
from sightline.media.regions import RegionConfig
from sightline.media.scan import IMAGE_SUFFIXES, find_images
from sightline.media.source import ImageBytes, ImageFile, ImageSlice, ImageSource

__all__ = [
    "IMAGE_SUFFIXES",
    "ImageBytes",
    "ImageFile",
    "ImageInput",
    "ImageSlice",
    "ImageSource",
    "Loaded",
    "Preprocess",
    "RegionConfig",
    "blank",
    "find_images",
    "fit",
    "in_a_batch",
    "load_pixels",
    "normalise",
    "open_image",
    "pixels_wanted",
    "to_input",
    "to_pixels",
    "without_padding",
]
