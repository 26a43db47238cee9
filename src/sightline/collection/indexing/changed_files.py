"""Compare a folder with the catalog: which files to read, and which are missing."""

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import PendingFile, Stamp, below, shown
from sightline.collection.catalog.rows import Row
from sightline.collection.indexing.report import FileProblem
from sightline.errors import MediaError
from sightline.media import IMAGE_SUFFIXES, find_images, raw, video
from sightline.media.file_types import RAW_SUFFIXES, VIDEO_SUFFIXES
from sightline.media.ignore import IgnoreRules

_FRESH_NS = 2_000_000_000  # the coarsest timestamp resolution: another change within it may go unnoticed


@dataclass(slots=True)
class FolderScan:
    """The work to do: files to read, and rows whose files are missing.

    ctimes: rows of unchanged files, with the ctime that an older version did not record.
    left_out: RAW photos and videos whose extra is not installed, counted by suffix.
    """

    work: list[PendingFile] = field(default_factory=list)
    missing: list[Row] = field(default_factory=list)
    unchanged: int = 0
    broken: list[FileProblem] = field(default_factory=list)
    skipped: list[FileProblem] = field(default_factory=list)
    ctimes: list[tuple[int, int]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: "FolderScan") -> Self:
        self.work += other.work
        self.missing += other.missing
        self.unchanged += other.unchanged
        self.broken += other.broken
        self.skipped += other.skipped
        self.ctimes += other.ctimes
        self.left_out += other.left_out
        return self


def scan_images(
    catalog: Catalog,
    root: int,
    folder: Path,
    within: Path,
    *,
    prune: bool = False,
    retry: bool = False,
    videos: bool = True,
) -> FolderScan:
    """Compare the images in `within`, which is the root `folder` or a part of it, with the catalog.

    videos: whether the collection can have videos.

    A root without any image is treated as a disconnected disk, unless `prune` is set. Files below a folder that
    could not be listed, or behind a broken link, do not count as missing. Neither do files that were indexed with
    an extra that is no longer installed.
    """
    found, seen, blind = FolderScan(), set[int](), list[Path]()
    paths: Iterable[Path] = ()

    def report(problem: MediaError) -> None:
        blind.append(Path(problem.name))
        found.skipped.append(FileProblem(shown(os.fsencode(problem.name)), problem.reason))

    def leave_out(path: Path) -> None:
        row = catalog.row(root, below(folder, path))
        if row is None:
            found.left_out.update([path.suffix.lower()])
        else:
            seen.add(row.id)
            found.unchanged += 1

    try:
        rules = _rules(folder, within)
        paths = find_images(within, report, suffixes=indexed_suffixes(videos), ignore=rules, other=leave_out)
    except MediaError as error:
        if not prune:
            report(error)
    for path in paths:
        raw = below(folder, path)
        row = catalog.row(root, raw)
        if row is not None:
            seen.add(row.id)
        try:
            stamp, is_settled = stamp_of(path)
        except OSError as error:
            report(MediaError(str(path), f"cannot be examined: {error.strerror or error}"))
            continue
        if row is None or row.stamp is None or not row.stamp.matches(stamp) or (retry and row.status == "broken"):
            found.work.append(PendingFile(root, raw, shown(raw), path, stamp if is_settled else None))
        elif row.status == "broken":
            found.broken.append(FileProblem(shown(os.fsencode(path)), row.reason))
        else:
            found.unchanged += 1
            if row.stamp.ctime_ns is None and stamp.ctime_ns is not None:
                found.ctimes.append((row.id, stamp.ctime_ns))
    rows = [row for row in catalog.rows(root) if row.id not in seen and _is_below(folder, row, [within])]
    if not seen and not found.work and within == folder and not prune:
        if rows and folder not in blind:
            found.skipped.append(_emptied(folder, len(rows)))
    else:
        found.missing = _gone(folder, rows, blind)
    return found


def indexed_suffixes(videos: bool = True) -> frozenset[str]:
    """Return the suffixes of the files to index, depending on the installed extras."""
    found = IMAGE_SUFFIXES | (RAW_SUFFIXES if raw.is_installed() else frozenset())
    return found | (VIDEO_SUFFIXES if videos and video.is_installed() else frozenset())


def _rules(folder: Path, within: Path) -> IgnoreRules:
    """Return the ignore rules for `within`, from all folders between it and the root."""
    rules = IgnoreRules.default(folder)
    inner = folder
    for name in within.relative_to(folder).parts:
        inner /= name
        rules = rules.entered(inner)
    return rules


def stamp_of(path: Path) -> tuple[Stamp, bool]:
    """Return a file's size and times, and whether they are old enough for any later write to change them."""
    status, now = path.stat(), time.time_ns()
    return Stamp.of(status), abs(now - status.st_mtime_ns) >= _FRESH_NS


def _emptied(folder: Path, count: int) -> FileProblem:
    return FileProblem(
        shown(os.fsencode(folder)),
        f"has no pictures now, but had {count:,}: they are kept in case a disk is not connected; "
        "to remove them, index with --prune",
    )


def _gone(folder: Path, rows: Iterable[Row], blind: list[Path]) -> list[Row]:
    dangling: dict[Path, bool] = {}
    return [
        row
        for row in rows
        if not _is_below(folder, row, blind) and not _dangles(folder, folder / os.fsdecode(row.raw), dangling)
    ]


def _is_below(folder: Path, row: Row, places: list[Path]) -> bool:
    path = folder / os.fsdecode(row.raw)
    return any(path.is_relative_to(place) for place in places)


def _dangles(folder: Path, path: Path, known: dict[Path, bool]) -> bool:
    """Return whether a path goes through a broken link, such as a link to a disconnected disk."""
    if path == folder:
        return False
    if path not in known:
        known[path] = (path.is_symlink() and not path.exists()) or _dangles(folder, path.parent, known)
    return known[path]
