"""The text read from images: lines with their positions, and a full-text index.

It is kept in `text/text.db` next to the catalog, in a separate file, so that text can be read in the background while
the catalog is written, and survives when a damaged catalog is rebuilt. Contents are identified by their hashes.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from sightline.collection.catalog.integrity import check_files
from sightline.collection.catalog.readers import Readers
from sightline.collection.image_text.words import fold
from sightline.errors import CollectionError
from sightline.media.ocr import TextLine, parse_lines

TEXT_FOLDER = "text"
TEXT_FILE = "text.db"
_VERSION = 1
_AT_ONCE = 500  # variables in one statement
_MATCHES = 300  # images with the best bm25 scores to examine
_PATIENCE = 30  # seconds to wait for another process
_TABLES = """
CREATE TABLE pictures (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    lines TEXT NOT NULL,               -- JSON: [[text, [[x, y], …]], …]
    problem TEXT NOT NULL DEFAULT ''   -- why it could not be read
);
CREATE VIRTUAL TABLE words USING fts5(body, tokenize = 'trigram');  -- of pictures that have text
"""


class _DamagedTextError(CollectionError):
    """The file is not a valid database; a database that is only locked, or on a full disk, is not damaged."""


class TextRead(NamedTuple):
    """The text of one image, identified by its content hash, or why it could not be read."""

    hash: bytes
    lines: Sequence[TextLine] = ()
    problem: str = ""


class TextCounts(NamedTuple):
    """How many images were read, how many of them have text, and how many failed."""

    read: int
    with_text: int
    failed: int


def text_path(at: Path) -> Path:
    """Return the file that holds the text of a collection's images."""
    return at / TEXT_FOLDER / TEXT_FILE


class TextDatabase:
    """The open database of text in a collection's images. Several threads may read it; one process writes."""

    def __init__(self, path: Path, connection: sqlite3.Connection | Readers) -> None:
        self.path = path
        self._opened = connection

    @classmethod
    def open(cls, at: Path, *, write: bool = False) -> "TextDatabase | None":
        """Open a collection's text database; None if no text was read yet. For writing, it is created if missing.

        A damaged file is replaced when it is opened for writing: its text is read again.
        """
        path = text_path(at)
        if not write and not os.path.lexists(path.parent):  # first, because every search gets here
            return None
        _check(path)
        if not write:
            found = cls(path, Readers(lambda: _connect(path, "ro"))) if path.exists() else None
            if found and found._all("PRAGMA user_version") == [(0,)]:  # another process is creating it
                found.close()
                return None
            return found
        path.parent.mkdir(exist_ok=True)
        try:
            return cls(path, _to_write(path))
        except _DamagedTextError:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return cls(path, _to_write(path))

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def stop_when(self, cancelled: Callable[[], bool]) -> None:
        """Interrupt a running query when `cancelled`, which is called in the query's thread, returns True."""
        if isinstance(self._opened, Readers):
            self._opened.stop_when(cancelled)

    def counts(self) -> TextCounts:
        """Return the number of images read, with text, and failed."""
        row = self._all(
            "SELECT count(*), coalesce(sum(lines != '[]'), 0), coalesce(sum(problem != ''), 0) FROM pictures"
        )
        return TextCounts(*row[0])

    def hashes(self) -> set[bytes]:
        """Return the content hashes of all images that were read."""
        return {bytes(hash) for (hash,) in self._all("SELECT hash FROM pictures")}

    def problems(self) -> list[tuple[bytes, str]]:
        """Return the content hashes of images that could not be read, with reasons."""
        return [
            (bytes(hash), reason)
            for hash, reason in self._all("SELECT hash, problem FROM pictures WHERE problem != ''")
        ]

    def lines_of(self, hash: bytes) -> list[TextLine]:
        """Return the text of the image with this content hash; empty if it has none or was not read."""
        found = self._all("SELECT lines FROM pictures WHERE hash = ?", hash)
        return _parsed(found[0][0]) if found else []

    def matching(self, parts: Sequence[str], *, every: bool = False) -> list[tuple[bytes, list[TextLine]]]:
        """Find images whose text contains any (with `every`, all) of these phrases, best first; at most a few hundred.

        parts: the folded phrases, which may be inside longer words: recognised text often lacks spaces.
        """
        indexed = [part for part in parts if len(part) >= 3]
        if not indexed:
            return self._containing(parts, every)
        expression = (" AND " if every else " OR ").join('"' + part.replace('"', '""') + '"' for part in indexed)
        rows = self._all(
            "SELECT p.hash, p.lines FROM words JOIN pictures p ON p.id = words.rowid"
            f" WHERE words MATCH ? ORDER BY rank LIMIT {_MATCHES}",
            expression,
        )
        return [(bytes(hash), _parsed(lines)) for hash, lines in rows]

    def _containing(self, parts: Sequence[str], every: bool) -> list[tuple[bytes, list[TextLine]]]:
        """Find phrases that are too short for the index, such as Chinese words, by scanning every text."""
        if not parts:
            return []
        tests = (" AND " if every else " OR ").join("instr(body, ?)" for _ in parts)
        rows = self._all(
            f"SELECT p.hash, p.lines FROM words JOIN pictures p ON p.id = words.rowid WHERE {tests} LIMIT {_MATCHES}",
            *parts,
        )
        return [(bytes(hash), _parsed(lines)) for hash, lines in rows]

    def add(self, found: Iterable[TextRead]) -> None:
        """Add what was read, in one transaction."""
        with self._transaction() as connection:
            for one in found:
                lines = json.dumps([[line.text, line.corners] for line in one.lines], ensure_ascii=False)
                query = "INSERT OR IGNORE INTO pictures (hash, lines, problem) VALUES (?, ?, ?)"
                cursor = connection.execute(query, (one.hash, lines, one.problem))
                if one.lines and cursor.rowcount:
                    body = fold("\n".join(line.text for line in one.lines))
                    connection.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (cursor.lastrowid, body))

    def remove(self, hashes: Iterable[bytes]) -> None:
        """Remove the text of images, in one transaction."""
        with self._transaction() as connection:
            for hash in hashes:
                found = connection.execute("SELECT id FROM pictures WHERE hash = ?", (hash,)).fetchone()
                if found:
                    connection.execute("DELETE FROM words WHERE rowid = ?", found)
                    connection.execute("DELETE FROM pictures WHERE id = ?", found)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert isinstance(self._opened, sqlite3.Connection)
        try:
            self._opened.execute("BEGIN IMMEDIATE")
            yield self._opened
            self._opened.execute("COMMIT")
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error
        finally:
            if self._opened.in_transaction:
                self._opened.execute("ROLLBACK")

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        connection = self._opened.connection() if isinstance(self._opened, Readers) else self._opened
        try:
            return connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error


def _check(path: Path) -> None:
    """Refuse a folder or file that is a link: SQLite would follow it."""
    if path.parent.is_symlink():
        raise CollectionError(f"{path.parent}: is a symbolic link, which is not followed", "Delete it.")
    check_files(path)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    try:
        connection = sqlite3.connect(
            address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise _unusable(path, error) from error
    if version not in (0, _VERSION):
        connection.close()
        raise CollectionError(
            f"{path}: has version {version}, which this version of Sightline cannot read", "Update Sightline."
        )
    return connection


def _to_write(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "rwc")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state)
    except sqlite3.Error as error:
        connection.close()
        raise _unusable(path, error) from error
    return connection


def _parsed(lines: object) -> list[TextLine]:
    """Return the lines of a row; those that are malformed are left out."""
    try:
        return parse_lines(json.loads(str(lines)))
    except (ValueError, TypeError, RecursionError):
        return []


def _unusable(path: Path, error: sqlite3.Error) -> CollectionError:
    if isinstance(error, sqlite3.OperationalError):
        return CollectionError(
            f"{path}: cannot be used: {error}", f"Try again, or delete {path.parent} and index again."
        )
    return _DamagedTextError(f"{path}: cannot be used: {error}", f"Delete {path.parent}, and index again.")
