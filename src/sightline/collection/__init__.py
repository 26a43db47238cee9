"""Collections of indexed images or texts: the catalog, indexing, access to servers, and the `Collection` facade.

The names below are imported on first use, so that importing this package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.collection.catalog.exif import Place
    from sightline.collection.catalog.files import File, Item
    from sightline.collection.collection import Collection
    from sightline.collection.indexing.report import FileProblem, IndexingInterrupted, Report
    from sightline.collection.indexing.sync import index

__all__ = ["Collection", "File", "FileProblem", "IndexingInterrupted", "Item", "Place", "Report", "index"]

_MODULE_OF = {
    "Collection": "collection",
    "File": "catalog.files",
    "IndexingInterrupted": "indexing.report",
    "Item": "catalog.files",
    "Place": "catalog.exif",
    "FileProblem": "indexing.report",
    "Report": "indexing.report",
    "index": "indexing.sync",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
