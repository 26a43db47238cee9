"""Locks: between processes, one writer per collection; between threads, many readers or one writer."""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from sightline.errors import CollectionError, CollectionInUseError
from sightline.files import FolderLock

LOCK_FILE = "lock"
Notify = Callable[[str], None]

_POLL_SECONDS = 0.1
_SIGNING_SECONDS = 0.5
_LONGEST_HOLDER = 1000  # bytes
_log = logging.getLogger(__name__)


@contextmanager
def write_lock(at: Path, *, wait: bool | float = True, notify: Notify | None = None) -> Iterator[None]:
    """Hold the write lock of the collection at `at`.

    The operating system releases the lock when the process ends, however it ends.

    wait: while another process holds the lock, wait for it (True), fail at once (False), or fail after this many
        seconds with a `CollectionError` that names the holder.
    notify: called once with a message if it has to wait; by default, the message is logged.
    """
    try:
        lock = FolderLock(at / LOCK_FILE)
    except OSError as error:
        raise CollectionError(
            f"{at / LOCK_FILE}: cannot be written: {error.strerror or error}",
            "Give yourself write permission there, or choose another folder with --at.",
        ) from error
    try:
        _acquire(lock, at, wait, notify or _log.warning)
        _write_holder(lock.file)
        try:
            yield
        finally:
            os.ftruncate(lock.file, 0)
    finally:
        lock.close()


def _acquire(lock: FolderLock, at: Path, wait: bool | float, notify: Notify) -> None:
    began = time.monotonic()
    deadline = began + float("inf" if wait is True else wait)
    has_notified = False
    while True:
        if lock.acquire():
            return
        holder = _read_holder(lock.file)
        if not holder and time.monotonic() < began + _SIGNING_SECONDS:
            time.sleep(_POLL_SECONDS / 10)
            continue
        message = f"{at} is being written to by {holder or 'another process'}"
        if time.monotonic() >= deadline:
            raise CollectionInUseError(message, "Wait until it has finished, or stop it, and try again.")
        if not has_notified:
            notify(f"{message}; waiting for it to finish")
            has_notified = True
        time.sleep(_POLL_SECONDS)


def _write_holder(file: int) -> None:
    """Name this process in the lock file; on a full disk, the lock is held without a name."""
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
    os.ftruncate(file, 0)
    with suppress(OSError):
        os.pwrite(file, holder.encode(), 0)


def _read_holder(file: int) -> str:
    """Describe the process that holds the lock; empty while it is writing or clearing its name."""
    try:
        holder = json.loads(os.pread(file, _LONGEST_HOLDER, 0))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return ""


class ReadWriteLock:
    """Lets any number of threads read, or one write. A waiting writer takes precedence over later readers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writers = 0  # writers active or waiting

    @contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock, shared with other readers."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writers)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Hold the lock exclusively, after the readers have finished."""
        with self._changed:
            self._writers += 1
            try:
                self._changed.wait_for(lambda: not self._readers)
                yield
            finally:
                self._writers -= 1
                self._changed.notify_all()
