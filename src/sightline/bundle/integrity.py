"""Verify a bundle's files against their hashes; the result is cached, so that files are not read at every start."""

import time
from collections.abc import Mapping
from pathlib import Path

from sightline.bundle.spec import check_file
from sightline.cache import load_cached, save_cached

Looks = list[int]

_FILE = "verified-2"  # version 2: files are also checked for external data
_SETTLED_NS = 2_000_000_000  # a file younger than this may change again without a new timestamp
_MOST = 1_000  # maximum number of files in the cache


def check_once(folder: Path, files: Mapping[str, str]) -> None:
    """Reject a bundle in which a file differs from the exported one; files: the sha256 of each, by name.

    A verified file is remembered by its size, times and inode, and not read again while these are unchanged. The times
    include the ctime, which changes on every write, even if the modification time is set back.
    """
    known = load_cached(_FILE)
    news = {}
    for name, expected in files.items():
        path = str((folder / name).absolute())
        looks = _looks(folder / name)
        if looks is None or known.get(path) != [expected, *looks]:
            check_file(folder, name, expected)
            if looks is not None and looks == _looks(folder / name) and _is_settled(looks):
                news[path] = [expected, *looks]
    if news:
        save_cached(_FILE, dict(list({**known, **news}.items())[-_MOST:]))


def _looks(path: Path) -> Looks | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def _is_settled(looks: Looks) -> bool:
    return time.time_ns() - max(looks[1], looks[2]) > _SETTLED_NS
