"""One process at a time."""

import os
import sys
from pathlib import Path

from sightline.errors import StoreError

LOCK_FILE = "lock"


def lock(folder: Path) -> int:
    """Become the one process that writes to a folder; closing the returned handle, or dying, ends it."""
    handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _claim(handle)
    except OSError as error:
        os.close(handle)
        raise StoreError(
            f"{folder}: another process is writing to it", "Wait until it has finished, or stop it."
        ) from error
    return handle


def _claim(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
