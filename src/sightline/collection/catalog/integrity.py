"""Whether a catalog is what was last written: a checksum of the whole file, valid while nobody writes to it."""

import hashlib
import json
import os
import sqlite3
from pathlib import Path

import numpy as np

from sightline.errors import CollectionError
from sightline.files import check_regular, open_regular, read_regular, write_atomic
from sightline.stores.checksums import BLOCK, checksums

CHECKSUM_FILE = "catalog.sum"
_LARGEST = 10_000  # bytes of that file
_AT_ONCE = 4 << 20
_WAIT_MS = 1000  # for readers, at the end of writing


class DamagedCatalogError(CollectionError):
    """A catalog that is not what was written: its file was changed, cut off or deleted."""

    def __init__(self, what: str, way_out: str = "Index its folders again: sightline index FOLDER") -> None:
        super().__init__(what, way_out)


def check_files(path: Path) -> None:
    """Refuse a catalog if one of its files is a link or a special file: SQLite would follow it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            check_regular(path.with_name(path.name + suffix))
        except OSError as error:
            raise CollectionError(f"{error.filename}: {error.strerror}", "Delete it.") from error


def check(path: Path) -> bool:
    """Compare a catalog with its checksum; False if it has none, such as while a process writes to it."""
    for _ in range(2):
        before = _recorded(path)
        if before is None:
            return False
        try:
            is_same = _digest(path) == before and not _has_log(path)
        except OSError as error:
            raise DamagedCatalogError(f"{path}: cannot be read: {error.strerror or error}") from error
        if is_same:
            return True
        if _recorded(path) == before:
            raise DamagedCatalogError(f"{path}: damaged: its checksum is wrong")
    return False  # it keeps changing


def forget(path: Path) -> None:
    """Remove the checksum, before the catalog is written to."""
    path.with_name(CHECKSUM_FILE).unlink(missing_ok=True)


def close_and_record(path: Path, connection: sqlite3.Connection) -> None:
    """Close a catalog that was written to, and record its checksum; none if a reader keeps it from being complete."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
        is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error:
        is_busy = True
    connection.close()
    if is_busy or _has_log(path):
        return
    try:
        digest = _digest(path)
        write_atomic(path.with_name(CHECKSUM_FILE), json.dumps({"digest": digest, "check": _check_of(digest)}))
    except OSError:  # a full disk: it stays without
        return


def set_aside(path: Path) -> None:
    """Rename a damaged catalog, so that a new one can take its place."""
    forget(path)
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if path.exists() or path.is_symlink():
        path.replace(path.with_name(path.name + ".damaged"))


def _recorded(path: Path) -> str | None:
    """The recorded checksum; None if there is none, or the record itself is damaged."""
    try:
        record = json.loads(read_regular(path.with_name(CHECKSUM_FILE), _LARGEST))
        digest = str(record["digest"])
        return digest if record["check"] == _check_of(digest) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _check_of(digest: str) -> str:
    return hashlib.sha256(digest.encode()).hexdigest()[:16]


def _has_log(path: Path) -> bool:
    """Whether there are changes beside the file, which are not in it yet."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _digest(path: Path) -> str:
    """A hash of the checksums of all blocks, which is several times faster than one of all bytes."""
    found = hashlib.blake2b(digest_size=16)
    handle = open_regular(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        for start in range(0, size, _AT_ONCE):
            data = os.pread(handle, _AT_ONCE, start)
            whole = len(data) // BLOCK * BLOCK
            found.update(checksums(np.frombuffer(data[:whole], dtype=np.uint8)).tobytes())
            found.update(data[whole:])
    finally:
        os.close(handle)
    return f"{size}:{found.hexdigest()}"
