"""The SQLite catalog of a collection: its files and their contents. One process writes while others read.

Vectors belong to rows of `contents`, not to files: copies of an image share one row, and a moved file keeps its own.
"""

import os
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from sightline.bundle.words import words_in
from sightline.collection.catalog import integrity
from sightline.collection.catalog.conditions import Condition
from sightline.collection.catalog.files import URL_LIST_SUFFIX, Facts, File, Item, PendingFile, Status, shown
from sightline.collection.catalog.integrity import DamagedCatalogError, FileId, file_id
from sightline.collection.catalog.moments import CatalogMoments
from sightline.collection.catalog.readers import Readers
from sightline.collection.catalog.rows import FACTS, FILE, ROW, Row, from_facts, inside, to_item, to_row, to_stamp
from sightline.collection.catalog.schema import CATALOG_FILE, connect
from sightline.collection.catalog.where import compile_where
from sightline.errors import CollectionError, QueryError
from sightline.stores.base import Ids, RefinableStore, Store

FROM = "FROM files f JOIN contents c ON c.id = f.content WHERE"
"""The tables that filters apply to."""

_NAMES_READ = 20_000  # file names to sample for words
_SHORT_WORD = 3  # letters; words up to this length are ignored
_AT_ONCE = 500  # variables in one statement; old versions of SQLite allow 999


class Catalog:
    """An open connection to a collection's `catalog.db`.

    Several threads may read at once. Only one thread may write at a time, inside `transaction`.
    """

    def __init__(
        self,
        at: Path,
        connection: sqlite3.Connection | Readers,
        *,
        trusted: bool = True,
        held: ExitStack | None = None,
        file: FileId | None = None,
    ) -> None:
        """Catalog of an open connection.

        held: releases the file when the catalog is closed or is no longer used; see `integrity.held`.
        file: identifies the file that was opened for reading.
        """
        self.at = at
        self._opened = connection
        self._trusted = trusted
        self._opened_file = file
        self._release = weakref.finalize(self, (held or ExitStack()).close)

    @classmethod
    def open(cls, at: Path, *, write: bool = False, trusted: bool = True) -> "Catalog":
        """Check and open the catalog in a collection's folder; when opened for writing, it is created if missing.

        trusted: whether the catalog may refer to files outside its folder and to the network.
        """
        path = at / CATALOG_FILE
        with ExitStack() as held:
            with suppress(OSError):  # a new one, or one that cannot be opened
                held.enter_context(integrity.held(path))
            is_checked = integrity.check(path)
            if not write:
                file = file_id(path)
                readers = Readers(lambda: _connect_to(path, file))
                return cls(at, readers, trusted=trusted, held=held.pop_all(), file=file)
            integrity.forget(path)
            connection = connect(path, write=True)
            held.enter_context(integrity.held(path))  # now that it exists
            catalog = cls(at, connection, trusted=trusted, held=held.pop_all())
        if not is_checked:
            try:
                catalog.quick_check()
            except BaseException:
                connection.close()
                catalog._release()
                raise
        return catalog

    def quick_check(self) -> None:
        """Run SQLite's integrity check."""
        path = self.at / CATALOG_FILE
        try:
            (found,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            raise DamagedCatalogError(f"{path} is damaged: {error}") from error
        if found != "ok":
            raise DamagedCatalogError(f"{path} is damaged: {found}")

    @property
    def connection(self) -> sqlite3.Connection:
        """The database connection; each reading thread has its own."""
        return self._opened.connection() if isinstance(self._opened, Readers) else self._opened

    def stop_when(self, cancelled: Callable[[], bool]) -> None:
        """Interrupt a running query when `cancelled`, which is called in the query's thread, returns True."""
        if isinstance(self._opened, Readers):
            self._opened.stop_when(cancelled)

    def version(self) -> int | None:
        """Return a number that changes whenever another process commits a change; None if not opened for reading."""
        return self._opened.version() if isinstance(self._opened, Readers) else None

    def is_replaced(self) -> bool:
        """Return whether the file that was opened for reading has been deleted, or replaced by another one."""
        return self._opened_file not in (None, file_id(self.at / CATALOG_FILE))

    def close(self) -> None:
        """Close the file; uncommitted changes are lost."""
        if isinstance(self._opened, Readers) or not (self.at / CATALOG_FILE).exists():  # or in memory
            self._opened.close()
        else:
            integrity.close_and_record(self.at / CATALOG_FILE, self._opened)
        self._release()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything written in the block, or nothing on an error; committed data is on disk."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise CollectionError(
                f"{self.at / CATALOG_FILE}: cannot be written to: {error}",
                "Free up disk space, or choose another folder with --at; what was already written is safe.",
            ) from error
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def __len__(self) -> int:
        """Return the number of items: contents that have at least one file."""
        return self._number("SELECT count(DISTINCT content) FROM files")

    def copies(self) -> int:
        """Return the number of files that are exact copies of another file."""
        return self._number("SELECT count(content) - count(DISTINCT content) FROM files")

    def ids(self) -> list[int]:
        """Return the ids of all contents, in ascending order; a video has one id for each of its moments."""
        return [id for (id,) in self._all("SELECT id FROM contents ORDER BY id")]

    def hashes(self) -> Iterator[bytes]:
        """Return the hashes of all contents."""
        return (found for (found,) in self._all("SELECT hash FROM contents"))

    def items(self, ids: Sequence[int], condition: Condition | None = None) -> dict[int, Item]:
        """Return the items with these ids and all their files; ids that no longer have a file are left out.

        For the id of a moment, the item is its video. Files that meet the condition come first.
        """
        rows = list(self.each(f"SELECT {FACTS} FROM contents c WHERE c.id IN", ids))
        files = self._files_of(list({row[1]: None for row in rows}))
        several = [id for id, own in files.items() if len(own) > 1]
        if condition is not None and several:
            passing = self._files_where(several, condition)
            for id in several:
                files[id].sort(key=lambda file, id=id: (id, file.root, file.path) not in passing)  # type: ignore[misc]
        return {row[0]: to_item(row, tuple(files[row[1]])) for row in rows if row[1] in files}

    def _files_where(self, ids: Sequence[int], condition: Condition) -> set[tuple[int, Path, str]]:
        """Return the files of these items that meet a condition."""
        roots, found = self.roots(), set()
        for start in range(0, len(ids), _AT_ONCE):
            chosen = ", ".join(map(str, ids[start : start + _AT_ONCE]))
            query = f"f.content, f.root, f.path {FROM} f.content IN ({chosen}) AND ({condition.sql})"
            rows = self.select(query, condition.values)
            found |= {(id, roots[root], path) for id, root, path in rows if root in roots}
        return found

    def name_words(self) -> list[str]:
        """Return the words in file and folder names, most frequent first; large collections are sampled."""
        found: Counter[str] = Counter()
        for (path,) in self._all(f"SELECT path FROM files WHERE status = 'ready' LIMIT {_NAMES_READ}"):
            found.update(words_in(path.rpartition(".")[0]))
        return [word for word, _ in found.most_common() if len(word) > _SHORT_WORD]

    def folders(self) -> list[str]:
        """Return all folders with items, and their parent folders, relative to their roots, in alphabetical order."""
        rows = self.everything().execute("SELECT DISTINCT folder FROM files WHERE line IS NULL AND folder != ''")
        return sorted(
            {"/".join(path.split("/")[: depth + 1]) for (path,) in rows for depth in range(path.count("/") + 1)}
        )

    def files(self, status: Status | None = None) -> list[File]:
        """Return all files, or all with this status, ordered by root and path."""
        chosen = "" if status is None else f"WHERE f.status = '{status}'"
        roots = self.roots()
        return [
            self._file(roots, row)
            for row in self._all(f"SELECT {FILE} FROM files f {chosen} ORDER BY f.root, f.line, f.raw")
        ]

    def roots(self) -> dict[int, Path]:
        """Return the indexed folders and files, by root number."""
        return {id: self._located(raw) for id, raw in self._all("SELECT id, raw FROM roots ORDER BY id")}

    def root(self, path: Path) -> int:
        """Return the number of a root, which is added if new; must be called in a transaction."""
        raw = self._relative(path)
        self.connection.execute("INSERT OR IGNORE INTO roots (raw) VALUES (?)", (raw,))
        return self._number("SELECT id FROM roots WHERE raw = ?", raw)

    def rows(self, root: int) -> Iterator[Row]:
        """Return the files of a root."""
        query = f"SELECT {ROW} FROM files WHERE root = ?"
        return (to_row(row) for row in self.connection.execute(query, (root,)))

    def row(self, root: int, raw: bytes) -> Row | None:
        """Return one file of a root; None if it is not in the catalog."""
        query = f"SELECT {ROW} FROM files WHERE root = ? AND raw = ?"
        found = self.connection.execute(query, (root, raw)).fetchone()
        return None if found is None else to_row(found)

    def ids_where(self, where: str) -> Ids:
        """Return the ids of the items with a file that matches a filter, in ascending order."""
        sql, values = compile_where(where)
        rows = self.select(f"DISTINCT f.content {FROM} {sql} ORDER BY 1", values)
        return np.array([id for (id,) in rows], dtype=np.int64)

    def narrowed(self, store: Store, where: str) -> tuple[Store, Ids | None]:
        """Return the store and the ids to search for a filter; ids are None if the store applies the filter itself."""
        moments = self.moments()
        return store, self.ids_where(where) if moments is None else moments.within(self.ids_where(where))

    def moments(self) -> CatalogMoments | None:
        """Return the moments of the collection's videos; None if it has no videos."""
        found = CatalogMoments(lambda: self.connection)
        return found if found.exist() else None

    def items_to_refine(self, store: Store) -> Ids:
        """Return the ids of the items that a fast image graph encoded, in ascending order; a video is one item."""
        fast = store.fast_ids() if isinstance(store, RefinableStore) else np.zeros(0, dtype=np.int64)
        moments = self.moments() if len(fast) else None
        return fast if moments is None else moments.items_of(fast)

    def select(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run a SELECT with a filter; raises a `QueryError` if the filter is too complex for SQLite."""
        try:
            return self.connection.execute(f"SELECT {query}", values).fetchall()
        except sqlite3.Error as error:
            raise QueryError(f"the filter cannot be evaluated: {error}", "Make it simpler or shorter.") from error

    def everything(self) -> sqlite3.Connection:
        """Return a connection to tables that contain all items."""
        return self.connection

    def content(self, hash: bytes) -> int | None:
        """Return the id of the content with this hash."""
        found = self.connection.execute("SELECT id FROM contents WHERE hash = ?", (hash,)).fetchone()
        return None if found is None else int(found[0])

    def hash_of(self, id: int) -> bytes | None:
        """Return the hash of the content with this id."""
        found = self.connection.execute("SELECT hash FROM contents WHERE id = ?", (id,)).fetchone()
        return None if found is None else bytes(found[0])

    def hashes_of(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Return the hashes of the contents with these ids."""
        return {id: bytes(found) for id, found in self.each("SELECT id, hash FROM contents WHERE id IN", ids)}

    def count_of(self, hashes: Iterable[bytes]) -> int:
        """Return how many contents with these hashes have a file."""
        found, every = 0, list(hashes)
        for start in range(0, len(every), _AT_ONCE):
            some = every[start : start + _AT_ONCE]
            query = f"SELECT count(*) FROM contents c WHERE c.hash IN ({', '.join('?' * len(some))})"
            found += self._number(f"{query} AND EXISTS (SELECT 1 FROM files f WHERE f.content = c.id)", *some)
        return found

    def add_contents(self, facts: Iterable[Facts]) -> list[int]:
        """Add contents; returns their ids, in order."""
        query = (
            "INSERT INTO contents (hash, width, height, taken, latitude, longitude, text, is_blank, moment, duration,"
            " parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT id FROM contents WHERE hash = ?))"
        )
        return [int(self.connection.execute(query, from_facts(fact)).lastrowid or 0) for fact in facts]

    def replace_contents(self, old: Sequence[int], facts: Sequence[Facts]) -> list[int]:
        """Replace the moments of a video with others, which take over its files; returns the new ids, in order."""
        self.connection.executemany("DELETE FROM contents WHERE id = ?", ((id,) for id in old))
        new = self.add_contents(facts)
        self.connection.execute("UPDATE files SET content = ? WHERE content = ?", (new[0], old[0]))
        return new

    def write(self, found: PendingFile, content: int | None, reason: str = "", replaces: int | None = None) -> None:
        """Write a file's row, marked as broken if it has no content, in place of the row `replaces` or its old one."""
        values = {
            "root": found.root,
            "path": found.path,
            "raw": found.raw,
            "line": found.line,
            "key": found.key,
            "size": found.stamp.size if found.stamp else None,
            "mtime_ns": found.stamp.mtime_ns if found.stamp else None,
            "ctime_ns": found.stamp.ctime_ns if found.stamp else None,
            "content": content,
            "status": "broken" if content is None else "ready",
            "reason": reason,
        }
        if replaces is not None:
            changes = ", ".join(f"{name} = :{name}" for name in values)
            self.connection.execute(f"UPDATE files SET {changes} WHERE id = :id", {**values, "id": replaces})
            return
        changes = ", ".join(f"{name} = excluded.{name}" for name in values)
        self.connection.execute(
            f"INSERT INTO files ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)}) "
            f"ON CONFLICT (root, raw) DO UPDATE SET {changes}",
            values,
        )

    def set_ctimes(self, ctimes: Iterable[tuple[int, int]]) -> None:
        """Set the ctimes, by row id, of files that version 1 recorded without one; must be called in a transaction."""
        query = "UPDATE files SET ctime_ns = ? WHERE id = ?"
        self.connection.executemany(query, ((ctime, row) for row, ctime in ctimes))

    def adopt(self, root: int, inner: int, prefix: bytes) -> None:
        """Move the files of the root `inner` to the root that contains it; `prefix` is the path between them."""
        query = "UPDATE files SET root = ?, path = ?, raw = ? WHERE id = ?"
        for row in list(self.rows(inner)):
            raw = prefix + b"/" + row.raw
            self.connection.execute(query, (root, shown(raw), raw, row.id))
        self.connection.execute("DELETE FROM roots WHERE id = ?", (inner,))

    def delete_files(self, rows: Iterable[int]) -> None:
        """Delete the rows of files; their contents stay until `delete_unused`."""
        self.connection.executemany("DELETE FROM files WHERE id = ?", ((row,) for row in rows))

    def delete_empty_roots(self) -> None:
        """Delete roots that have no files."""
        self.connection.execute("DELETE FROM roots WHERE id NOT IN (SELECT root FROM files)")

    def delete_unused(self) -> list[int]:
        """Delete the contents that no longer have a file; returns their ids."""
        unused = "coalesce(parent, id) NOT IN (SELECT content FROM files WHERE content IS NOT NULL)"
        ids = [id for (id,) in self._all(f"SELECT id FROM contents WHERE {unused}")]
        self.connection.execute(f"DELETE FROM contents WHERE {unused}")
        return ids

    def delete_contents(self, ids: Iterable[int]) -> None:
        """Delete contents and the rows of their files, so that the files are read again."""
        for id in ids:
            self.connection.execute("DELETE FROM files WHERE content = ?", (id,))
            self.connection.execute("DELETE FROM contents WHERE id = ?", (id,))

    def skip_ids(self, highest: int) -> None:
        """Never assign ids up to `highest`, because the store has used them, even if the catalog has lost them."""
        query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'contents'"
        if self._number(query) < highest:
            self.connection.execute("DELETE FROM sqlite_sequence WHERE name = 'contents'")
            self.connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('contents', ?)", (highest,))

    def _files_of(self, ids: Sequence[int]) -> dict[int, list[File]]:
        files: dict[int, list[File]] = {}
        roots: dict[int, Path] = {}
        query = f"SELECT {FILE}, f.content, r.raw FROM files f JOIN roots r ON r.id = f.root WHERE f.content IN"
        for *row, content, raw in self.each(query, ids, "ORDER BY f.root, f.line, f.raw"):
            if row[0] not in roots:
                roots[row[0]] = self._located(raw)
            files.setdefault(content, []).append(self._file(roots, row))
        return files

    def _file(self, roots: dict[int, Path], row: Sequence[Any]) -> File:
        root, path, raw, status, reason, line, key, *stamp = row
        folder = roots[root]
        where = folder if line else inside(folder, raw)
        is_trusted = self._trusted or (
            where.is_relative_to(self.at.parent) and folder.suffix.lower() != URL_LIST_SUFFIX
        )
        return File(folder, path, where, status, reason, line, key, is_trusted, to_stamp(*stamp))

    def _located(self, raw: bytes) -> Path:
        return Path(os.path.normpath(self.at / os.fsdecode(raw)))

    def _relative(self, path: Path) -> bytes:
        """Return the path to store for a root: relative if it contains the collection, so that both can be moved."""
        return os.fsencode(os.path.relpath(path, self.at) if self.at.is_relative_to(path) else path)

    def _number(self, query: str, *values: object) -> int:
        return int(self.connection.execute(query, values).fetchone()[0])

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()

    def each(self, query: str, ids: Sequence[int], order: str = "") -> Iterator[tuple[Any, ...]]:
        """Run a query that ends in `IN` with any number of ids, in batches."""
        for start in range(0, len(ids), _AT_ONCE):
            some = [int(id) for id in ids[start : start + _AT_ONCE]]
            yield from self.connection.execute(f"{query} ({', '.join('?' * len(some))}) {order}", some).fetchall()


def _connect_to(path: Path, file: FileId | None) -> sqlite3.Connection:
    """Connect to a catalog for reading; raises an error if it is no longer the file that was opened first."""
    try:
        connection = connect(path, write=False)
    except CollectionError:
        if file_id(path) == file:
            raise
    else:
        if file_id(path) == file:
            return connection
        connection.close()
    raise CollectionError(f"{path.parent}: was replaced while it was open", "Call `refresh`, or open it again.")
