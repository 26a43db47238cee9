"""Sightline finds images by words and words by images.

The verbs are here; each loads what it needs when it is called, so that importing Sightline costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.evaluation import evaluate as evaluate
    from sightline.loading import load as load
    from sightline.training.export import export as export
    from sightline.training.trainer import train as train

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "export", "load", "train"]

_VERBS = {
    "evaluate": "sightline.evaluation",
    "export": "sightline.training.export",
    "load": "sightline.loading",
    "train": "sightline.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'sightline' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_VERBS[name]), name)
