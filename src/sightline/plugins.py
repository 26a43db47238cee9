"""Code of one's own, named in a recipe or a command by its Python path, `my_module:MyLoss`."""

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from sightline.errors import SightlineError

READER_PREFIX = "py:"
"""Before the path of a reader, as in `py:my_module:read_photos:photos.db`."""


def import_modules(names: Iterable[str]) -> None:
    """Import modules by name, also from the current folder."""
    for name in names:
        _module(name)


def find(path: str) -> Any:
    """What a Python path such as `my_module:MyLoss` names.

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
            f"{name}: cannot be imported: {error}", "Run the command in the folder of the module, or install it."
        ) from error
