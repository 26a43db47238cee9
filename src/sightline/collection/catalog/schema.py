"""Define the tables of a catalog, and open its file for one writer or many readers."""

import json
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from sightline.collection.albums import Albums
from sightline.collection.catalog.conditions import lower_letters
from sightline.collection.catalog.integrity import DamagedCatalogError, check_files
from sightline.errors import CollectionError

SCHEMA = 5
_WITH_CTIME = 2  # the first version that stores the ctime of files
_WITH_FOLDERS = 3  # the first version that stores the folder and name of files
_WITH_BLANK = 4  # the first version that marks blank images; version 5 added moments of videos
CATALOG_FILE = "catalog.db"

_PATIENCE = 60  # seconds to wait while another process recovers or checkpoints the database
FOLDER = "rtrim(rtrim(path, replace(path, '/', '')), '/')"
NAME = "substr(path, length(rtrim(path, replace(path, '/', ''))) + 1)"
"""SQL expressions for the folder and the name of a file, from its path."""

_FILES = f"""
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    root INTEGER NOT NULL REFERENCES roots (id),
    path TEXT NOT NULL,              -- below the root, for people and filters
    raw BLOB NOT NULL,               -- the exact bytes of the same; of a text, what tells it from the file's others
    line INTEGER,                    -- of a text
    key TEXT,                        -- the id that a text was given
    size INTEGER,                    -- size and mtime_ns are null if the file must be read again
    mtime_ns INTEGER,
    ctime_ns INTEGER,                -- null in rows that version 1 wrote
    content INTEGER REFERENCES contents (id),
    status TEXT NOT NULL CHECK (status IN ('ready', 'broken')),
    reason TEXT NOT NULL DEFAULT '',
    folder TEXT AS ({FOLDER}) STORED,
    name TEXT AS ({NAME}) STORED,
    UNIQUE (root, raw),
    CHECK ((status = 'ready') = (content IS NOT NULL))
);
CREATE INDEX files_by_content ON files (content);
"""
_MOMENTS = "CREATE INDEX contents_by_parent ON contents (parent) WHERE moment IS NOT NULL;"
_TABLES = f"""
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
    text TEXT,
    is_blank INTEGER,                -- 1 for an image of one colour or a tiny one; null in rows of versions 1 to 3
    moment REAL,                     -- of a video: seconds from its beginning
    parent INTEGER,                  -- of a moment but the first: the content of the first; files belong to that
    duration REAL                    -- of a video, in seconds
);
{_FILES}
CREATE INDEX contents_by_time ON contents (taken);
{_MOMENTS}
"""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open a catalog; for writing, it is created if missing, and upgraded if an older version wrote it.

    Each commit is on disk when it returns (`synchronous = FULL`). Otherwise a power cut could lose rows; their vectors
    would be deleted on the next opening, and the items would have to be encoded again.
    """
    check_files(path)
    try:
        connection = _open(path, "rwc") if write else _open_to_read(path)
        try:
            if write:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            _add_functions(connection, path.parent)
            _check(path, connection, write)
        except BaseException:
            connection.close()
            raise
        return connection
    except sqlite3.OperationalError as error:
        raise CollectionError(
            f"{path}: cannot be opened: {error}",
            "Check its permissions and the space on its disk, or index again into another folder with --at.",
        ) from error
    except sqlite3.DatabaseError as error:
        raise DamagedCatalogError(f"{path} is damaged: {error}") from error


def empty_catalog() -> sqlite3.Connection:
    """Return an empty catalog in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_TABLES)
    _add_functions(connection, None)
    return connection


def root_name(at: Path, raw: bytes) -> str:
    """Return the name of a root's folder or file, from its path as stored."""
    return Path(os.path.normpath(at.absolute() / os.fsdecode(raw))).name.encode("utf-8", "replace").decode()


def _add_functions(connection: sqlite3.Connection, at: Path | None) -> None:
    """Register the SQL functions that filters use. at: the collection's folder, if it has one."""
    albums = Albums(at) if at else None
    connection.create_function("albums_of", 1, lambda hash: json.dumps(albums.of(bytes(hash)) if albums else []))
    connection.create_function("root_name", 1, lambda raw: root_name(at or Path("/"), raw), deterministic=True)
    connection.create_function("lower_letters", 1, lower_letters, deterministic=True)


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
    """Open for reading, even if the folder is not writable."""
    try:
        return _open(path, "ro")
    except sqlite3.OperationalError:
        if not path.is_file() or os.access(path.parent, os.W_OK):
            raise
        return _open(path, "ro&immutable=1")


def _check(path: Path, connection: sqlite3.Connection, write: bool) -> None:
    """Create the tables if there are none, upgrade older versions, and refuse newer ones."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == 0 and write:
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
    elif 0 < found < SCHEMA and write:
        connection.executescript(f"BEGIN IMMEDIATE; {_upgrade(found)} PRAGMA user_version = {SCHEMA}; COMMIT;")
    elif 0 < found < SCHEMA:
        blank = "NULL AS is_blank, " if found < _WITH_BLANK else ""
        missing = f"{blank}NULL AS moment, NULL AS parent, NULL AS duration"
        connection.execute(f"CREATE TEMP VIEW contents AS SELECT *, {missing} FROM main.contents")
        if found < _WITH_FOLDERS:
            ctime = "NULL AS ctime_ns, " if found < _WITH_CTIME else ""
            connection.execute(
                f"CREATE TEMP VIEW files AS SELECT *, {ctime}{FOLDER} AS folder, {NAME} AS name FROM main.files"
            )
    elif found != SCHEMA:
        raise CollectionError(
            f"{path}: has catalog version {found}, but this version of Sightline reads versions 1 to {SCHEMA}",
            "Update Sightline, or index again into another folder with --at.",
        )


def _upgrade(version: int) -> str:
    """Return the SQL that upgrades the tables of an older version."""
    new = ["moment REAL", "parent INTEGER", "duration REAL"]
    if version < _WITH_BLANK:
        new.insert(0, "is_blank INTEGER")
    added = " ".join(f"ALTER TABLE contents ADD COLUMN {column};" for column in new) + _MOMENTS
    if version >= _WITH_FOLDERS:
        return added
    columns = "id, root, path, raw, line, key, size, mtime_ns, content, status, reason"
    columns += ", ctime_ns" if version >= _WITH_CTIME else ""
    return (
        f"{added} DROP INDEX files_by_content; ALTER TABLE files RENAME TO older_files;"
        f"{_FILES} INSERT INTO files ({columns}) SELECT {columns} FROM older_files; DROP TABLE older_files;"
    )
