"""The tables of a catalog, and how the file that holds them is opened safely by one writer and many readers."""

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from sightline.errors import CollectionError

SCHEMA = 1
CATALOG_FILE = "catalog.db"

_PATIENCE = 60  # seconds to wait while another process recovers or checkpoints
_TABLES = """
CREATE TABLE roots (
    id INTEGER PRIMARY KEY,
    raw BLOB NOT NULL UNIQUE         -- from the collection's folder where that lies inside the root, else from /
);
CREATE TABLE contents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- also the store's id, and never used twice
    hash BLOB NOT NULL UNIQUE,
    width INTEGER,
    height INTEGER,
    taken TEXT,                      -- ISO 8601, by the camera's clock
    latitude REAL,
    longitude REAL,
    text TEXT
);
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    root INTEGER NOT NULL REFERENCES roots (id),
    path TEXT NOT NULL,              -- below the root, for people and filters
    raw BLOB NOT NULL,               -- the exact bytes of the same; of a text, what tells it from the file's others
    line INTEGER,                    -- of a text
    key TEXT,                        -- the id that a text was given
    size INTEGER,                    -- size and mtime_ns are null where the file must be read again
    mtime_ns INTEGER,
    content INTEGER REFERENCES contents (id),
    status TEXT NOT NULL CHECK (status IN ('ready', 'broken')),
    reason TEXT NOT NULL DEFAULT '',
    UNIQUE (root, raw),
    CHECK ((status = 'ready') = (content IS NOT NULL))
);
CREATE INDEX files_by_content ON files (content);
CREATE INDEX contents_by_time ON contents (taken);
"""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open a catalog; for writing, one that is not there is made.

    A commit is on the disk when it returns (`synchronous = FULL`): vectors without rows are mended on opening, but rows
    that a power cut took back would be items indexed in vain.
    """
    try:
        connection = _open(path, "rwc") if write else _open_to_read(path)
        try:
            if write:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            _check(path, connection, write)
        except BaseException:
            connection.close()
            raise
        return connection
    except sqlite3.Error as error:
        raise CollectionError(
            f"{path}: cannot be opened: {error}", "If it is damaged, index anew into another folder with --at."
        ) from error


def empty_catalog() -> sqlite3.Connection:
    """A catalog in memory, of nothing."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_TABLES)
    return connection


def _open(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open for reading, also in a folder or on a disk where nothing can be written, not even beside the file."""
    try:
        return _open(path, "ro")
    except sqlite3.OperationalError:
        if not path.is_file() or os.access(path.parent, os.W_OK):
            raise
        return _open(path, "ro&immutable=1")


def _check(path: Path, connection: sqlite3.Connection, write: bool) -> None:
    """Make the tables where there are none, and refuse those of another version."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == 0 and write:
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
    elif found != SCHEMA:
        raise CollectionError(
            f"{path}: catalog version {found}, but this version of Sightline reads version {SCHEMA}",
            "Update Sightline, or index anew into another folder with --at.",
        )
