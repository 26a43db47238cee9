"""Detect damage to a catalog with a checksum of the whole file, which is valid only while no process writes to it."""

import errno
import hashlib
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sightline.errors import CollectionError
from sightline.files import check_regular, open_regular, read_regular, write_atomic
from sightline.stores.checksums import BLOCK, checksums

CHECKSUM_FILE = "catalog.sum"
_LARGEST = 10_000  # bytes in the checksum file
_AT_ONCE = 4 << 20
_WAIT_MS = 1000  # how long to wait for readers at the end of writing
_opening = threading.Lock()

FileId = tuple[int, int]
"""The device and inode of a file. While a file is open, no other file gets its inode, even if it was deleted."""


@dataclass(slots=True)
class _Held:
    """The open descriptors of a file, and how many use it."""

    descriptors: list[int]
    users: int = 0


_held: dict[FileId, _Held] = {}


class DamagedCatalogError(CollectionError):
    """The catalog file was modified, truncated or deleted since it was last written."""

    def __init__(self, what: str, way_out: str = "Index its folders again: sightline index FOLDER") -> None:
        super().__init__(what, way_out)


def check_files(path: Path) -> None:
    """Refuse a catalog if one of its files is a link or a special file, because SQLite would follow it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            check_regular(path.with_name(path.name + suffix))
        except OSError as error:
            way_out = "Delete it." if error.errno == errno.EINVAL else "Check the permissions of its folder."
            raise CollectionError(f"{error.filename}: {error.strerror}", way_out) from error


def file_id(path: Path) -> FileId | None:
    """Identify the file at a path; None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check(path: Path) -> bool:
    """Compare a catalog with its checksum; False if it has none, for example while a process writes to it."""
    for _ in range(2):
        before = _recorded(path)
        if before is None:
            return False
        try:
            is_same = _digest(path) == before[0] and not _has_log(path)
        except OSError as error:
            raise DamagedCatalogError(f"{path}: cannot be read: {error.strerror or error}") from error
        if is_same:
            return True
        if _recorded(path) == before:
            raise DamagedCatalogError(f"{path} is damaged: its checksum is wrong")
    return False  # the file keeps changing


def forget(path: Path) -> None:
    """Remove the checksum before writing to the catalog."""
    path.with_name(CHECKSUM_FILE).unlink(missing_ok=True)


def close_and_record(path: Path, connection: sqlite3.Connection) -> None:
    """Close a catalog after writing, and record its checksum unless a reader prevents a full checkpoint."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
        # of an empty log, a checkpoint changes nothing, but readers would take it for a change
        is_busy = _has_log(path) and connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error:
        is_busy = True
    connection.close()
    if is_busy or _has_log(path):
        return
    try:
        digest = _digest(path)
        record = {"digest": digest, "check": _check_of(digest), "run": secrets.token_hex(8)}
        write_atomic(path.with_name(CHECKSUM_FILE), json.dumps(record))
    except OSError:  # disk full: no checksum is recorded
        return


def set_aside(path: Path) -> None:
    """Rename a damaged catalog, so that a new one can be created."""
    forget(path)
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if path.exists() or path.is_symlink():
        path.replace(path.with_name(path.name + ".damaged"))


def _recorded(path: Path) -> tuple[str, str] | None:
    """Return the recorded checksum, and a value that differs each time it is recorded; None if missing or damaged.

    A process may write and leave the catalog as it was, which is no damage for those who read it meanwhile.
    """
    try:
        record = json.loads(read_regular(path.with_name(CHECKSUM_FILE), _LARGEST))
        digest = str(record["digest"])
        return (digest, str(record.get("run", ""))) if record["check"] == _check_of(digest) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _check_of(digest: str) -> str:
    return hashlib.sha256(digest.encode()).hexdigest()[:16]


def _has_log(path: Path) -> bool:
    """Return whether a write-ahead log contains changes that are not yet in the file."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _digest(path: Path) -> str:
    """Return a hash of the checksums of all blocks, which is several times faster than hashing all bytes."""
    found = hashlib.blake2b(digest_size=16)
    with held(path) as descriptor:
        size = os.fstat(descriptor).st_size
        for start in range(0, size, _AT_ONCE):
            data = os.pread(descriptor, _AT_ONCE, start)
            whole = len(data) // BLOCK * BLOCK
            found.update(checksums(np.frombuffer(data[:whole], dtype=np.uint8)).tobytes())
            found.update(data[whole:])
    return f"{size}:{found.hexdigest()}"


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Give a descriptor of a file, which stays open until nothing in this process holds the file.

    Hold a catalog for as long as it has connections: when a process closes any descriptor of a file, it loses all its
    locks on the file, including those of SQLite's connections. Another process could then delete the log that these
    connections still use.
    """
    with _opening:
        found = path.lstat()
        if (found.st_dev, found.st_ino) not in _held:
            descriptor = open_regular(path, os.O_RDONLY)
            found = os.fstat(descriptor)
            _held.setdefault((found.st_dev, found.st_ino), _Held([])).descriptors.append(descriptor)
        own = _held[found.st_dev, found.st_ino]
        own.users += 1
    try:
        yield own.descriptors[0]
    finally:
        with _opening:
            own.users -= 1
            if not own.users:
                del _held[found.st_dev, found.st_ino]
                for descriptor in own.descriptors:
                    os.close(descriptor)
