"""Detected regions of images: readers for the published feature formats, and a common store."""

from sightline.datasets.regions.detections import Found, Keep
from sightline.datasets.regions.formats import read_regions
from sightline.datasets.regions.partial import names_in
from sightline.datasets.regions.store import RegionSlice, RegionStore, is_region_store
from sightline.datasets.regions.writer import Written, write_regions

__all__ = [
    "Found",
    "Keep",
    "RegionSlice",
    "RegionStore",
    "Written",
    "is_region_store",
    "names_in",
    "read_regions",
    "write_regions",
]
