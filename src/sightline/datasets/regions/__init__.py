"""Regions of pictures that a detector found: readers of the formats they are published in, and a store for all."""

from sightline.datasets.regions.begun import names_in
from sightline.datasets.regions.formats import read_regions
from sightline.datasets.regions.found import Found, Keep
from sightline.datasets.regions.store import RegionSlice, RegionStore, is_region_store
from sightline.datasets.regions.writing import Written, write_regions

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
