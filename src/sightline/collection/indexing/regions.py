"""Stores of region features, indexed: an item has no pixels, only what a detector found in them."""

from pathlib import Path

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import PendingFile
from sightline.collection.indexing.report import FileProblem
from sightline.collection.indexing.scan import Scan, stamp_of
from sightline.collection.indexing.shards_and_urls import compare
from sightline.datasets.regions.store import SPEC_FILE, RegionStore
from sightline.errors import DataError


def scan_regions(catalog: Catalog, root: int, path: Path, *, retry: bool = False) -> Scan:
    """Hold the pictures of a store against the catalog; each is known by its name, as its file would be.

    A store is written at one stroke: while its `regions.json` stays the same, so do all of its pictures. Of a store
    that cannot be opened nothing counts as gone.
    """
    scan = Scan()
    try:
        stamp, is_settled = stamp_of(path / SPEC_FILE)
        records = list(
            RegionStore.open(path).records(lambda one: scan.skipped.append(FileProblem(one.place, one.reason)))
        )
    except (OSError, DataError) as error:
        return Scan(skipped=[FileProblem(str(path), str(error))])
    pictures = [
        PendingFile(root, record.key.encode(), record.key, path, stamp if is_settled else None, source=record.image)
        for record in records
    ]
    compare(scan, pictures, {row.raw: row for row in catalog.rows(root)}, retry)
    return scan
