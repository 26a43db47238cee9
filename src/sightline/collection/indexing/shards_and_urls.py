"""Scan images in WebDataset shards (`.tar`) and at the URLs in a list (`.urls`).

A list is a text file with one URL per line: of an image or, if the URL ends in `.tar`, of a shard. Empty lines and
lines that begin with `#` are ignored.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import URL_LIST_SUFFIX, File, PendingFile, Stamp, shown
from sightline.collection.catalog.rows import Row
from sightline.collection.indexing.changed_files import FolderScan, stamp_of
from sightline.collection.indexing.report import FileProblem
from sightline.datasets.files import numbered_lines
from sightline.datasets.regions.store import is_region_store
from sightline.errors import DataError, MediaError
from sightline.media import ImageFile, ImageSlice, ImageSource
from sightline.media.archive import SHARD_SUFFIX, ArchiveMember, images_in
from sightline.media.remote import ImageURL, look, open_url

_UNCHANGING = Stamp(0, 0)  # images at URLs are assumed not to change
_URL = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_Rows = dict[bytes, Row]


class Span(NamedTuple):
    """An image's position in its shard, and the shard's number of images; recorded to avoid listing the shard again."""

    offset: int
    size: int
    of: int

    def __str__(self) -> str:
        return f"{self.offset}+{self.size} of {self.of}"

    @classmethod
    def parse(cls, key: str | None) -> "Span | None":
        """Parse the output of `str`."""
        found = re.fullmatch(r"(\d+)\+(\d+) of (\d+)", key or "")
        return cls(*(int(number) for number in found.groups())) if found else None


def is_container(place: Path) -> bool:
    """Return whether a path is a shard, a list or a region store, whose items are not files in a folder."""
    if place.is_dir():
        return is_region_store(place)
    return place.suffix.lower() in (SHARD_SUFFIX, URL_LIST_SUFFIX)


def source_of(file: File) -> ImageSource:
    """Return the source to read an image of a collection from."""
    if not file.is_trusted:
        return _Refused(str(file.where))
    span = Span.parse(file.key)
    if span is not None:
        url = _shard_of(os.fsencode(file.path)) if _is_list(file.root) else b""
        member = file.path[len(url) + 1 if url else 0 :]
        return _Shard(file.root, os.fsdecode(url)).source(ArchiveMember(member, span.offset, span.size))
    return ImageURL(file.path) if _is_list(file.root) else ImageFile(file.where)


def scan_container(catalog: Catalog, root: int, path: Path, *, prune: bool = False, retry: bool = False) -> FolderScan:
    """Compare the images of a shard or a list with the catalog.

    An unchanged shard is not opened if all its images are known. Images at URLs are assumed not to change. Images of
    shards and lists that cannot be read are kept, unless `prune` is set and the shard or list itself is missing.
    """
    scan = FolderScan()
    rows = _by_shard(catalog.rows(root))
    try:
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        urls = _urls_in(path, scan) if _is_list(path) else []
    except DataError as error:
        if prune:
            scan.missing = [row for own in rows.values() for row in own.values()]
        else:
            scan.skipped.append(FileProblem(str(path), error.what.removeprefix(f"{path}: ")))
        return scan
    if _is_list(path):
        compare(scan, [_at_url(root, path, url) for url in urls if not _is_shard(url)], rows.pop(b"", {}), retry)
    for url in filter(_is_shard, urls) if _is_list(path) else [b""]:
        own = rows.pop(url, {})
        try:
            compare(scan, _in_shard(root, _Shard(path, os.fsdecode(url)), own), own, retry)
        except MediaError as error:
            scan.skipped.append(FileProblem(error.name, error.reason))
    scan.missing += [row for own in rows.values() for row in own.values()]
    return scan


@dataclass(frozen=True, slots=True)
class _Refused:
    """An image that an untrusted collection must not refer to."""

    name: str

    def read(self) -> bytes:
        """Raise an error."""
        reason = "outside the folder of a collection that you did not make on this machine"
        raise MediaError(self.name, reason, "Pass its folder to index: sightline index FOLDER")


@dataclass(frozen=True, slots=True)
class _Shard:
    """An archive of images: a local file, or a URL in a list."""

    place: Path
    url: str = ""

    @property
    def prefix(self) -> str:
        """Prefix of the paths of its images."""
        return f"{self.url}/" if self.url else ""

    def look(self) -> tuple[Stamp, bool]:
        """Return the shard's size and times, and whether a later write is certain to change them."""
        return stamp_of(self.place) if not self.url else (Stamp(*look(self.url)), True)

    def open(self, size: int) -> BinaryIO:
        return open_url(self.url, size) if self.url else self.place.open("rb")

    def source(self, part: ArchiveMember) -> ImageSource:
        return ImageURL(self.url, *part) if self.url else ImageSlice(self.place, *part)


def _is_list(place: Path) -> bool:
    return place.suffix.lower() == URL_LIST_SUFFIX


def _is_shard(url: bytes) -> bool:
    return url.lower().endswith(SHARD_SUFFIX.encode())


def _shard_of(raw: bytes) -> bytes:
    """Return the URL of the shard that contains an image in a list."""
    return raw[: raw.lower().index(f"{SHARD_SUFFIX}/".encode()) + len(SHARD_SUFFIX)]


def _by_shard(rows: Iterable[Row]) -> dict[bytes, _Rows]:
    """Group rows by the URL of their shard, which is empty for rows without one."""
    found: dict[bytes, _Rows] = defaultdict(dict)
    for row in rows:
        remote = Span.parse(row.key) is not None and _URL.match(row.raw)
        found[_shard_of(row.raw) if remote else b""][row.raw] = row
    return found


def _urls_in(path: Path, scan: FolderScan) -> list[bytes]:
    """Return the distinct URLs in a list; other lines are reported."""
    urls: dict[bytes, None] = {}
    for number, line in numbered_lines(path):
        url = line.strip()
        if _URL.fullmatch(url):
            urls[url] = None
        elif url and not url.startswith(b"#"):
            scan.skipped.append(FileProblem(f"{path}:{number}", "not a URL such as https://… or s3://…"))
    return list(urls)


def _at_url(root: int, path: Path, url: bytes) -> PendingFile:
    return PendingFile(root, url, shown(url), path, _UNCHANGING, source=ImageURL(os.fsdecode(url)))


def _in_shard(root: int, shard: _Shard, rows: _Rows) -> list[PendingFile]:
    """List every image of a shard, from the catalog if it has all of them, or else from the shard's headers."""
    try:
        stamp, is_settled = shard.look()
        parts = _known_parts(shard, rows, stamp)
        if parts is None:
            with shard.open(stamp.size) as file:
                parts = list({part.member: part for part in images_in(file, shard.url or str(shard.place))}.values())
    except OSError as error:
        raise MediaError(str(shard.place), f"cannot be read: {error.strerror or error}") from error
    found = []
    for part in parts:
        raw = os.fsencode(shard.prefix + part.member)
        key = str(Span(part.offset, part.size, len(parts)))
        looks = stamp if is_settled else None
        found.append(PendingFile(root, raw, shown(raw), shard.place, looks, key=key, source=shard.source(part)))
    return found


def _known_parts(shard: _Shard, rows: _Rows, stamp: Stamp) -> list[ArchiveMember] | None:
    """Return the images of a shard from the catalog; None if some are missing there or the shard has changed."""
    spans = {raw: Span.parse(row.key) for raw, row in rows.items() if _is_same(row.stamp, stamp)}
    if not spans or any(span is None or span.of != len(spans) for span in spans.values()):
        return None
    start = len(os.fsencode(shard.prefix))
    return [ArchiveMember(os.fsdecode(raw[start:]), span.offset, span.size) for raw, span in spans.items() if span]


def _is_same(one: Stamp | None, other: Stamp | None) -> bool:
    return one is not None and other is not None and one.matches(other)


def compare(scan: FolderScan, images: Iterable[PendingFile], rows: _Rows, retry: bool) -> None:
    """Add to the scan the images that must be read and the rows whose images are missing."""
    left = dict(rows)
    for found in images:
        row = left.pop(found.raw, None)
        if row is None or not _is_same(row.stamp, found.stamp) or (retry and row.status == "broken"):
            scan.work.append(found)
        elif row.status == "broken":
            scan.broken.append(FileProblem(found.name, row.reason))
        else:
            scan.unchanged += 1
    scan.missing += left.values()
