"""Sightline finds images by text and text by images.

    load           open a model
    index          index folders of images, or text files
    open, search   search a collection, many times or once
    explain        where in an image each word of a text is found
    explain_codes  what the codes of a checkpoint attend to
    evaluate       measure how well a model finds images and captions
    train, export  train a model, and turn it into a bundle that searches without torch

Every error that Sightline raises on purpose is a `SightlineError`.
"""

import os

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

__version__ = "0.1.0"

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it on import, and otherwise sends statistics

__all__ = [
    "BundleError",
    "CollectionError",
    "DataError",
    "EvaluationError",
    "MediaError",
    "ModelError",
    "OptionError",
    "QueryError",
    "RecipeError",
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


def __dir__() -> list[str]:
    return __all__
