"""Pictures coming in: find them, open them safely, bring them to the size and range a model reads."""

from sightline.media.loading import Loaded, load_pixels
from sightline.media.opening import open_image
from sightline.media.pixels import Preprocess, fit, normalise, to_pixels
from sightline.media.scan import IMAGE_SUFFIXES, find_images
from sightline.media.source import ImageBytes, ImageFile, ImageSlice, ImageSource

__all__ = [
    "IMAGE_SUFFIXES",
    "ImageBytes",
    "ImageFile",
    "ImageSlice",
    "ImageSource",
    "Loaded",
    "Preprocess",
    "find_images",
    "fit",
    "load_pixels",
    "normalise",
    "open_image",
    "to_pixels",
]
