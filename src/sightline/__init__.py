"""Sightline finds images by text and text by images.

    load           open a model
    index          index folders of images, or text files
    open, search   search a collection, many times or once
    explain        where in an image each word of a text is found
    explain_codes  what the codes of a checkpoint attend to
    evaluate       measure how well a model finds images and captions
    train, export  train a model, and turn it into a bundle that searches without torch

The types of what they return are `Collection`, `SearchResult`, `Hit`, `Item`, `Report` and `Model`. Every error that
Sightline raises on purpose is a `SightlineError`, except `IndexingInterrupted`, which is a `KeyboardInterrupt`.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sightline.api import evaluate, explain, explain_codes, export, index, load, open, search, train
from sightline.errors import (
    BundleError,
    CollectionError,
    DataError,
    EvaluationError,
    MediaError,
    ModelError,
    OptionError,
    QueryError,
    RecipeError,
    ServeError,
    SightlineError,
    StoreError,
)

if TYPE_CHECKING:
    from sightline.bundle.model import Model
    from sightline.collection.catalog.files import Item
    from sightline.collection.collection import Collection
    from sightline.collection.indexing.report import IndexingInterrupted, Report
    from sightline.retrieval.results import Hit, SearchResult

__version__ = "0.1.0"

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it on import, and otherwise sends statistics

__all__ = [
    "BundleError",
    "Collection",
    "CollectionError",
    "DataError",
    "EvaluationError",
    "Hit",
    "IndexingInterrupted",
    "Item",
    "MediaError",
    "Model",
    "ModelError",
    "OptionError",
    "QueryError",
    "RecipeError",
    "Report",
    "SearchResult",
    "ServeError",
    "SightlineError",
    "StoreError",
    "__version__",
    "evaluate",
    "explain",
    "explain_codes",
    "export",
    "index",
    "load",
    "open",
    "search",
    "train",
]

_MODULE_OF = {
    "Collection": "collection.collection",
    "Hit": "retrieval.results",
    "IndexingInterrupted": "collection.indexing.report",
    "Item": "collection.catalog.files",
    "Model": "bundle.model",
    "Report": "collection.indexing.report",
    "SearchResult": "retrieval.results",
}
"""The types are imported on first use, so that importing Sightline is fast."""


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
