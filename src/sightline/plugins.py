"""User-defined code, named in a recipe or a command by its Python path, such as `my_module:MyLoss`."""

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from sightline.errors import SightlineError

READER_PREFIX = "py:"
"""The prefix of a user-defined reader's path, as in `py:my_module:read_photos:photos.db`."""


def import_modules(names: Iterable[str]) -> None:
    """Import modules by name, including from the current folder; `my_module:MyEncoder` also registers the encoder."""
    for name in names:
        if ":" in name:
            register_encoder(name)
        else:
            _module(name)


def register_encoder(path: str) -> Any:
    """Register a user-defined encoder with transformers, which can then open its checkpoints; returns its class."""
    from transformers import AutoConfig, AutoModel, PreTrainedModel

    found: Any = find(path)
    if not isinstance(found, type) or not issubclass(found, PreTrainedModel):
        raise SightlineError(f"{path}: is not a subclass of transformers.PreTrainedModel")
    config: Any = found.config_class  # type: ignore[attr-defined]
    if config is None or not config.model_type:
        raise SightlineError(f"{path}: its config_class has no model_type", "Set model_type in it to a unique name.")
    AutoConfig.register(config.model_type, config, exist_ok=True)
    AutoModel.register(config, found, exist_ok=True)
    return found


def find(path: str) -> Any:
    """Look up the object that a Python path such as `my_module:MyLoss` names.

    >>> find("math:sqrt")(9.0)
    3.0
    """
    module, _, name = path.partition(":")
    try:
        return getattr(_module(module), name)
    except AttributeError as error:
        raise SightlineError(f"{path}: the module {module} has no {name}") from error


def _module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder, as in `python -m`
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SightlineError(
            f"{name}: cannot be imported: {error}", "Run the command in the module's folder, or install the module."
        ) from error
