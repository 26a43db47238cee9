"""Folders that take long to make, made by one of the processes that run tests at once and used by all."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def common_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of all processes that run tests at once."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder of a name, which nobody may change. The first to ask for it makes it; others wait until it is whole.

    make: called with the path of a folder that does not exist yet.
    """
    folder = common_folder(factory) / "shared" / name
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make(folder.with_suffix(".new"))
            folder.with_suffix(".new").rename(folder)
    return folder
