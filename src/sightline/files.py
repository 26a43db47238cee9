"""Open, replace and lock files that may come from untrusted data.

Nothing here follows a symbolic link or waits for a pipe: a folder from an archive must not be able to redirect writes.
"""

import errno
import os
import re
import stat
import threading
from pathlib import Path

from sightline.errors import SightlineError

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_DRAFT = re.compile(r"\.\d+-\d+\.new$")


def open_regular(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file like `os.open`, but only a regular one; links, pipes and devices raise an `OSError`."""
    try:
        handle = os.open(path, flags | _NO_FOLLOW, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise _irregular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _irregular(path)
    return handle


def read_regular(path: Path, limit: int) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes; anything else raises an `OSError`."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return data


def check_regular(path: Path) -> None:
    """Raise an `OSError` if a path exists and is not a regular file; for files that other libraries will open."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise _irregular(path)


def _irregular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "a link or a special file, which is not followed", str(path))


def check_writable(path: Path | None) -> None:
    """Check that a result file can be written before starting the work."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise SightlineError(f"{path}: its folder does not exist", f"mkdir -p {path.parent}")
    if path.is_dir():
        raise SightlineError(f"{path}: is a folder, not a file", "Specify a file name.")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise SightlineError(f"{path}: you do not have permission to write to it", "Choose another location.")


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Replace a file atomically: a crash leaves either the old version or the new one.

    The data goes to a temporary file in the same folder, which is then renamed. Each writer uses its own temporary
    file, so the last rename wins.

    mode: permissions of the new file, before the umask.
    sync: wait until the new version is on disk. Use False only for files that can be recreated.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)  # O_EXCL does not follow links
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def remove_drafts(folder: Path) -> None:
    """Delete temporary files that a crash of `write_atomic` left in a folder; no process may be writing to it."""
    for path in folder.iterdir():
        if is_draft(path):
            path.unlink(missing_ok=True)


def is_draft(path: Path) -> bool:
    """Return whether a file has the name of a temporary file of `write_atomic`."""
    return _DRAFT.search(path.name) is not None


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries (the names of its files) to disk."""
    if os.name == "nt":  # Windows cannot open folders, and does not need this after renaming
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FolderLock:
    """An exclusive lock on a folder, held until it is closed or the process ends.

    Both the folder and a lock file in it are locked: the lock file says which process holds the lock, and the folder
    stays locked if someone deletes the file.
    """

    def __init__(self, path: Path) -> None:
        """Prepare to lock the folder that contains `path`, the lock file, which is created if missing."""
        self.file = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._path = path
        self._folder = os.open(path.parent, os.O_RDONLY) if os.name != "nt" else -1

    def acquire(self) -> bool:
        """Try to take the lock, without waiting; False if another process holds it."""
        if self._folder >= 0 and not _lock(self._folder, optional=True):
            return False
        if _lock(self.file) and self._is_current():
            return True
        self._reopen()
        return False

    def close(self) -> None:
        """Release the lock."""
        os.close(self.file)
        if self._folder >= 0:
            os.close(self._folder)

    def _is_current(self) -> bool:
        """Return whether the lock file is still in place; another process may have deleted or replaced it."""
        own = os.fstat(self.file)
        try:
            now = self._path.lstat()
        except FileNotFoundError:
            return False
        return (own.st_dev, own.st_ino) == (now.st_dev, now.st_ino)

    def _reopen(self) -> None:
        if not self._is_current():
            os.close(self.file)
            self.file = open_regular(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        if self._folder >= 0:  # closing the handle releases the lock on the folder
            os.close(self._folder)
            self._folder = os.open(self._path.parent, os.O_RDONLY)


def _lock(handle: int, optional: bool = False) -> bool:
    """Lock an open file; with `optional`, return True on file systems that cannot lock folders."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if not optional:
            raise
    return True
