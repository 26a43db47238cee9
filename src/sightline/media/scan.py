"""Find the images in a folder."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sightline.errors import MediaError
from sightline.media.file_types import IMAGE_SUFFIXES, RAW_SUFFIXES, VIDEO_SUFFIXES
from sightline.media.ignore import IgnoreRules

_log = logging.getLogger(__name__)
_Report = Callable[[MediaError], None]
_Identity = tuple[int, int]


def find_images(
    folder: Path,
    problems: Callable[[MediaError], None] | None = None,
    *,
    suffixes: frozenset[str] = IMAGE_SUFFIXES,
    ignore: IgnoreRules | None = None,
    other: Callable[[Path], None] | None = None,
) -> Iterator[Path]:
    """Return every image under `folder`, recognised by its suffix, in sorted order.

    suffixes: the suffixes of files to find, in lower case.
    ignore: rules for what to leave out, extended by rule files in subfolders; by default none.
    other: called with every RAW photo and video whose suffix is not in `suffixes`.

    Hidden files and folders (a leading dot) are left out. Links to folders are followed, but each folder is visited
    only once, under the first path that leads to it, so that loops end and nothing is listed twice. Unreadable
    subfolders and broken links are passed to `problems`, or logged as warnings. If `folder` itself cannot be read, a
    `MediaError` is raised at once.
    """
    try:
        identity = _identity(folder)
        entries = _visible(folder)
    except OSError as error:
        raise _unlisted(folder, error, "Use a folder that exists and that you can read.") from error
    return _walk((entries, ignore), {identity}, suffixes, problems or _log_problem, other)


def _walk(
    first: tuple[Iterator[os.DirEntry[str]], IgnoreRules | None],
    entered: set[_Identity],
    suffixes: frozenset[str],
    report: _Report,
    other: Callable[[Path], None] | None,
) -> Iterator[Path]:
    """Walk depth first with an explicit stack, because folders may be nested deeper than Python can recurse."""
    stack = [first]
    while stack:
        entries, rules = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        path = Path(entry.path)
        try:
            if rules and rules.ignores(entry.path, entry.is_dir()):
                continue
            if entry.is_dir():
                if (identity := _identity(path)) not in entered:
                    entered.add(identity)
                    stack.append((_visible(path), rules and rules.entered(path)))
            elif path.suffix.lower() in suffixes:
                if entry.is_file():
                    yield path
                elif entry.is_symlink():
                    report(MediaError(entry.path, "is a broken link", "Fix or delete the link."))
            elif other and path.suffix.lower() in RAW_SUFFIXES | VIDEO_SUFFIXES:
                other(path)
        except OSError as error:
            report(_unlisted(path, error, "Its pictures are left out. Give yourself permission to read it."))


def _identity(folder: Path) -> _Identity:
    """Return a folder's device and inode, which are the same for every path that leads to it."""
    stat = folder.stat()
    return stat.st_dev, stat.st_ino


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as listing:
        return iter(sorted((entry for entry in listing if not entry.name.startswith(".")), key=lambda e: e.name))


def _unlisted(folder: Path, error: OSError, way_out: str) -> MediaError:
    return MediaError(str(folder), f"cannot be listed: {error.strerror or error}", way_out)


def _log_problem(problem: MediaError) -> None:
    _log.warning("%s", problem)
