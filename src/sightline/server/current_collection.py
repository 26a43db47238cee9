"""The current state of a collection: new searches see changes, running ones finish with the old state."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sightline.bundle.model import Model
from sightline.collection import Collection
from sightline.collection.manifest import has_manifest
from sightline.collection.vectors import VECTORS_FOLDER
from sightline.errors import SightlineError
from sightline.server.worker_pool import is_cancelled
from sightline.stores.head import HEAD_FILE


class CurrentCollection:
    """Opens a collection, and reopens it when it has changed, without blocking searches."""

    def __init__(self, at: Path | str, model: Model) -> None:
        self._at = at
        self._model = model
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._users: dict[Collection, int] = {}
        self._stamp = _stamp(at)
        self._now = _opened(at, model)
        self._users[self._now] = 0

    @contextmanager
    def use(self) -> Iterator[Collection]:
        """The current collection, which stays open until the block ends."""
        with self._lock:
            used = self._now
            self._users[used] += 1
        try:
            yield used
        finally:
            with self._lock:
                self._users[used] -= 1
            self._close_unused()

    @property
    def is_available(self) -> bool:
        """Whether the collection's folder is still there; a store on a server counts as available."""
        try:
            return isinstance(self._at, str) or has_manifest(self._at)
        except OSError:  # such as a drive that was disconnected
            return False

    def renew(self) -> bool:
        """Reopen the collection if it has changed; returns whether it was reopened. Errors leave the old state open."""
        with self._renewing:  # so that a slower thread does not bring back an older state
            stamp = _stamp(self._at)
            if stamp == self._stamp:
                return False
            opened = _opened(self._at, self._model)
            with self._lock:
                self._now, self._stamp = opened, stamp
                self._users[opened] = 0
        self._close_unused()
        return True

    def close(self) -> None:
        """Close the collection; it must no longer be in use."""
        with self._lock:
            opened = list(self._users)
            self._users.clear()
        for collection in opened:
            collection.close()

    def _close_unused(self) -> None:
        with self._lock:
            unused = [old for old, users in self._users.items() if not users and old is not self._now]
            for old in unused:
                del self._users[old]
        for old in unused:
            old.close()


def _opened(at: Path | str, model: Model) -> Collection:
    """Open a collection; raises an error if it was indexed with another model."""
    opened = Collection.open(at, model, prefer_gpu=True)
    try:
        opened.check_model(model)
        opened.stop_when(is_cancelled)
    except SightlineError:
        opened.close()
        raise
    return opened


def _stamp(at: Path | str) -> tuple[int, int] | None:
    """Return a value that changes whenever vectors are written, because every write replaces their head file.

    None if the vectors are on a server, where every search sees the current state.
    """
    if isinstance(at, str):
        return None
    try:
        found = (at / VECTORS_FOLDER / HEAD_FILE).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
