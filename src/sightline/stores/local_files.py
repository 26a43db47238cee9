"""Open, lock and repair the folder of a local store."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sightline.errors import DamagedStoreError, StoreError
from sightline.files import FolderLock, open_regular, remove_drafts
from sightline.stores.base import Shape
from sightline.stores.generation import Generation, generation_files, remove_others
from sightline.stores.head import HEAD_FILE, Head, check_shape, read_head, write_head

LOCK_FILE = "lock"
DAMAGE_FILE = "damaged"
"""Created when a reader finds damage, so that the next writer checks everything."""

_TRIES = 10  # attempts to open files, which `compact` in another process may replace


def lock_folder(folder: Path) -> FolderLock:
    """Lock a folder for writing, creating it if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder / LOCK_FILE)
    if not lock.acquire():
        lock.close()
        raise StoreError(f"{folder}: another process is writing to it", "Wait until it has finished, or stop it.")
    return lock


def open_files(folder: Path, shape: Shape) -> Generation:
    """Open the files of the current head for reading; if `compact` has just removed them, retry with the new head."""
    missing = DamagedStoreError(f"{folder}: some of the store's files are missing")
    for _ in range(_TRIES):
        head = read_head(folder)
        if head is None:
            raise StoreError(f"{folder}: no vectors are stored here", "Index some images first.")
        check_shape(folder, head, shape)
        try:
            return Generation(folder, head, write=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DamagedStoreError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from error
    raise missing


def open_files_to_write(folder: Path, shape: Shape) -> Generation:
    """Open or create the files of a store, truncate them to what its head lists, and remove the remains of a crash."""
    head = read_head(folder)
    with closed_on_error(_files_to_write(folder, shape, head)) as files:
        if head is not None:
            remove_others(folder, head)
            remove_drafts(folder)
        if files.head() != head:  # new, or in a format without checksums
            files.sync()
            write_head(folder, files.head())
    return files


def _files_to_write(folder: Path, shape: Shape, head: Head | None) -> Generation:
    if head is None:
        return Generation.new(folder, shape, 0)
    check_shape(folder, head, shape)
    try:
        return Generation(folder, head, write=True)
    except FileNotFoundError as error:
        raise DamagedStoreError(f"{folder}: some of the store's files are missing") from error


@contextmanager
def closed_on_error(files: Generation) -> Iterator[Generation]:
    """Close newly opened files if the block fails."""
    try:
        yield files
    except BaseException:
        files.close()
        raise


def delete_files(folder: Path) -> None:
    """Delete the files of a store, and its folder if nothing else is in it."""
    if not (folder / HEAD_FILE).is_file():
        return
    remove_drafts(folder)
    for path in (*generation_files(folder), *(folder / name for name in (DAMAGE_FILE, LOCK_FILE, HEAD_FILE))):
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def remember_damage(folder: Path) -> Iterator[None]:
    """Record that damage was found, so that the next writer checks for it; does nothing without write permission."""
    try:
        yield
    except DamagedStoreError:
        with contextlib.suppress(OSError):
            os.close(open_regular(folder / DAMAGE_FILE, os.O_WRONLY | os.O_CREAT))
        raise


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn file system errors into a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: cannot be written to: {error.strerror or error}",
            "Free up space or choose another folder; what was already flushed is safe.",
        ) from error
