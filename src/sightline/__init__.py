"""Sightline finds images by words and words by images.

The verbs are here; each loads what it needs when it is called, so that importing Sightline costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.api import explain as explain
    from sightline.api import explain_codes as explain_codes
    from sightline.api import open as open
    from sightline.api import search as search
    from sightline.collection.indexing.sync import index as index
    from sightline.evaluation import evaluate as evaluate
    from sightline.evaluation import evaluate_names as evaluate_names
    from sightline.onnx_export.exporter import export as export
    from sightline.registry.loader import load as load
    from sightline.training.trainer import train as train

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "evaluate",
    "evaluate_names",
    "explain",
    "explain_codes",
    "export",
    "index",
    "load",
    "open",
    "search",
    "train",
]

_VERBS = {
    "evaluate": "sightline.evaluation",
    "evaluate_names": "sightline.evaluation",
    "explain": "sightline.api",
    "explain_codes": "sightline.api",
    "export": "sightline.onnx_export.exporter",
    "index": "sightline.collection.indexing.sync",
    "load": "sightline.registry.loader",
    "open": "sightline.api",
    "search": "sightline.api",
    "train": "sightline.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'sightline' has no attribute {name!r}")
    return getattr(import_module(_VERBS[name]), name)


def __dir__() -> list[str]:
    return __all__
