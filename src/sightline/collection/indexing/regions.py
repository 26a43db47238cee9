"""Scan region stores, which hold the regions that a detector found in images, not their pixels."""

from pathlib import Path

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import PendingFile
from sightline.collection.indexing.changed_files import FolderScan, stamp_of
from sightline.collection.indexing.report import FileProblem
from sightline.collection.indexing.shards_and_urls import compare
from sightline.datasets.regions.store import SPEC_FILE, RegionStore
from sightline.errors import DataError


def scan_regions(catalog: Catalog, root: int, path: Path, *, retry: bool = False) -> FolderScan:
    """Compare the images of a region store with the catalog; each is identified by its name.

    A store is always written completely: if its `regions.json` is unchanged, so are its images. If a store cannot be
    opened, its images are kept.
    """
    scan = FolderScan()
    try:
        stamp, is_settled = stamp_of(path / SPEC_FILE)
        records = list(
            RegionStore.open(path).records(lambda one: scan.skipped.append(FileProblem(one.place, one.reason)))
        )
    except (OSError, DataError) as error:
        return FolderScan(skipped=[FileProblem(str(path), str(error))])
    images = [
        PendingFile(root, record.key.encode(), record.key, path, stamp if is_settled else None, source=record.image)
        for record in records
    ]
    compare(scan, images, {row.raw: row for row in catalog.rows(root)}, retry)
    return scan
