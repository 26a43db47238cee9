"""Writing files so that a crash leaves either the old version or the new one."""

import os
import threading
from pathlib import Path


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Replace a file as a whole.

    The data goes to a temporary file in the same folder, which is then renamed. Each writer uses its own temporary
    file, so the last rename wins.

    mode: permissions of the new file, before the umask.
    sync: wait until the new version is on disk. Leave it out only for files that can be recreated.
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


def sync_folder(folder: Path) -> None:
    """Wait until the file names in a folder are on disk."""
    if os.name == "nt":  # folders cannot be opened there, and renaming is enough
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
