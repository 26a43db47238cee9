"""Read connections to a catalog: one per thread, so that no thread waits for another's query."""

import sqlite3
import threading
import weakref
from collections.abc import Callable

from sightline.errors import CollectionError

_STEPS = 10_000  # SQLite VM instructions between two checks for cancellation; about a millisecond


class Readers:
    """Opens a connection for each thread on first use, and closes it when the thread ends.

    Threads sharing a connection would wait for its lock, some of them while holding the GIL.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Open the calling thread's connection now, so that errors are raised here."""
        self._connect = connect
        self._own = threading.local()
        self._all: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._cancelled: Callable[[], bool] | None = None
        self._watching: _Reader | None = None
        self._is_open = True
        self.connection()

    def connection(self) -> sqlite3.Connection:
        """Return the connection of the calling thread."""
        if not self._is_open:
            raise CollectionError("the collection was closed", "Open it again.")
        reader: _Reader | None = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._own.reader = _Reader(self._connect())
            with self._lock:
                self._all.add(reader)
                if self._cancelled:
                    reader.stop_when(self._cancelled)
        return reader.connection

    def version(self) -> int:
        """Return a number that changes whenever a change to the database is committed; the same for all threads."""
        with self._lock:
            if not self._is_open:
                raise CollectionError("the collection was closed", "Open it again.")
            if self._watching is None:  # versions of different connections cannot be compared
                self._watching = _Reader(self._connect())
                self._all.add(self._watching)
            return int(self._watching.connection.execute("PRAGMA data_version").fetchone()[0])

    def stop_when(self, cancelled: Callable[[], bool]) -> None:
        """Interrupt a running query when `cancelled`, which is called in the query's thread, returns True."""
        with self._lock:
            self._cancelled = cancelled
            for reader in self._all:
                reader.stop_when(cancelled)

    def close(self) -> None:
        """Close all connections."""
        self._is_open = False
        with self._lock:
            for reader in self._all:
                reader.connection.close()


class _Reader:
    """A connection that is closed when its thread ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def stop_when(self, cancelled: Callable[[], bool]) -> None:
        self.connection.set_progress_handler(cancelled, _STEPS)

    def __del__(self) -> None:
        self.connection.close()
