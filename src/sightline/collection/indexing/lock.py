"""One writer at a time: a lock that the operating system lets go of when its holder ends, however it ends."""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from sightline.errors import CollectionError

LOCK_FILE = "lock"
Told = Callable[[str], None]

_POLL_SECONDS = 0.1
_SIGNING_SECONDS = 0.5
_log = logging.getLogger(__name__)


@contextmanager
def writing(at: Path, *, wait: bool | float = True, told: Told | None = None) -> Iterator[None]:
    """Hold the right to write into the collection at `at`.

    wait: while another process holds it, wait for as long as it takes (True), not at all (False), or for this many
        seconds; then a `CollectionError` says who holds it.
    told: is told once, in a sentence, that there is a wait and for whom; by default it is logged.
    """
    with _open(at / LOCK_FILE) as file:
        _take(file, at, wait, told or _log.warning)
        _sign(file)
        try:
            yield
        finally:
            file.truncate(0)


def _open(path: Path) -> IO[str]:
    try:
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        raise CollectionError(
            f"{path}: cannot be written: {error.strerror or error}",
            "Give yourself the right to write there, or choose another folder with --at.",
        ) from error


def _take(file: IO[str], at: Path, wait: bool | float, told: Told) -> None:
    began = time.monotonic()
    deadline = began + float("inf" if wait is True else wait)
    has_told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            signature = _signature(file)
        if not signature and time.monotonic() < began + _SIGNING_SECONDS:
            time.sleep(_POLL_SECONDS / 10)
            continue
        holder = f"{at} is being written to by {signature or 'another process'}"
        if time.monotonic() >= deadline:
            raise CollectionError(holder, "Wait until that is done, or end it, and try again.")
        if not has_told:
            told(f"{holder}; waiting until that is done")
            has_told = True
        time.sleep(_POLL_SECONDS)


def _sign(file: IO[str]) -> None:
    file.truncate(0)
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": since}, file)
    file.flush()


def _signature(file: IO[str]) -> str:
    """Who holds the lock, as they signed; nothing while they are about to sign or to let go."""
    file.seek(0)
    try:
        signed = json.loads(file.read())
        return f"process {signed['pid']} on {signed['host']} since {signed['since']}"
    except (ValueError, KeyError, TypeError):
        return ""
