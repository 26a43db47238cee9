"""Sightline finds images by words and words by images.

The verbs are here; each loads what it needs when it is called, so that importing Sightline costs next to nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.collection.sync import index as index
    from sightline.evaluation import evaluate as evaluate
    from sightline.loading import load as load
    from sightline.training.export import export as export
    from sightline.training.trainer import train as train
    from sightline.verbs import explain as explain
    from sightline.verbs import explain_codes as explain_codes
    from sightline.verbs import open as open
    from sightline.verbs import search as search

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "explain", "explain_codes", "export", "index", "load", "open", "search", "train"]

_VERBS = {
    "evaluate": "sightline.evaluation",
    "explain": "sightline.verbs",
    "explain_codes": "sightline.verbs",
    "export": "sightline.training.export",
    "index": "sightline.collection.sync",
    "load": "sightline.loading",
    "open": "sightline.verbs",
    "train": "sightline.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'sightline' has no attribute {name!r}")
    return getattr(import_module(_VERBS[name]), name)


def __dir__() -> list[str]:
    return __all__


class _Search(ModuleType):
    """The package `sightline.search` has the name of a verb: called, it is the verb."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("sightline.verbs").search(*arguments, **options)


import_module("sightline.search")
sys.modules["sightline.search"].__class__ = _Search
