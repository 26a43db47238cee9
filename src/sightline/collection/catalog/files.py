"""A collection's files and items, as the catalog describes them."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sightline.collection.catalog.exif import Place
from sightline.media import ImageSource

Status = Literal["ready", "broken"]
URL_LIST_SUFFIX = ".urls"
"""Suffix of a URL list, a text file of URLs whose images are read over the network."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file's size and times when it was read; while they are unchanged, it is not read again.

    ctime_ns: reveals a change even if the modification time was set back; None if unknown.
    """

    size: int
    mtime_ns: int
    ctime_ns: int | None = None

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        """Return the stamp of a file from its status; times that the catalog cannot hold become the nearest it can."""
        return cls(status.st_size, _in_64_bits(status.st_mtime_ns), _in_64_bits(status.st_ctime_ns))

    def matches(self, other: "Stamp") -> bool:
        """Return whether both stamps describe the same state of a file."""
        if (self.size, self.mtime_ns) != (other.size, other.mtime_ns):
            return False
        return None in (self.ctime_ns, other.ctime_ns) or self.ctime_ns == other.ctime_ns


def _in_64_bits(time_ns: int) -> int:
    """Return the nearest 64-bit integer: nanoseconds beyond the year 2262, which file systems can store, need more."""
    return max(-(2**63), min(time_ns, 2**63 - 1))


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A file, or a line of a text file, that is still to be read.

    root: the catalog's number for the folder or text file. raw: identifies the file within its root; for an image,
        the exact bytes of its path relative to the root. path: the same, as text. where: its exact path.
    stamp: None if the file must be read again at the next run, even if it appears unchanged.
    text, line, key: for a text, its content, line number and id. For an image in a shard, `key` is its position; see
        `shards_and_urls.Span`.
    problem: what is wrong with the file, if already known.
    source: where its bytes are read from, if it is not a separate file.
    """

    root: int
    raw: bytes
    path: str
    where: Path
    stamp: Stamp | None = None
    text: str | None = None
    line: int | None = None
    key: str | None = None
    problem: str = ""
    source: ImageSource | None = None

    @property
    def name(self) -> str:
        """The name used in reports."""
        if self.source is not None:
            return self.source.name
        return shown(os.fsencode(self.where)) + (f":{self.line}" if self.line else "")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a collection, or a line of a text file.

    root: the indexed folder or text file.
    path: relative to the root, with forward slashes, for display and filters; `captions.jsonl:12` for a text.
    where: its exact path, even if its name is not valid text; for a text, the path of the text file.
    reason: why it is broken.
    line, key: for a text, its line number and its id in the file. For an image in a shard, `key` is its position.
    is_trusted: False if a collection that this user did not create refers to a file outside its own folder, or to
        the network.
    stamp: its size and times when it was read; None if it must be read again.
    """

    root: Path
    path: str
    where: Path
    status: Status = "ready"
    reason: str = ""
    line: int | None = None
    key: str | None = None
    is_trusted: bool = True
    stamp: Stamp | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Item:
    """One search result: an image, video or text, and the file, or the identical files, that contain it.

    width, height: in pixels, after rotation. taken: capture time in ISO 8601. place: where it was taken.
    text: the full text, if the item is a text.
    is_blank: whether the image is tiny or a single colour; searches rank such images last.
    moment, duration: for a video, the time of its first moment, or of the requested one, and its length, in seconds.
    """

    id: int
    files: tuple[File, ...]
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    place: Place | None = None
    text: str | None = None
    is_blank: bool = False
    moment: float | None = None
    duration: float | None = None

    @property
    def is_video(self) -> bool:
        """Whether the item is a video."""
        return self.moment is not None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about the content of a file besides its vectors; `hash` identifies the content.

    is_blank: whether the image is tiny or a single colour.
    moment, duration: for a video, the time of this moment and the video's length, in seconds.
    parent: for every moment of a video but the first, the hash of the first.
    """

    hash: bytes
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    place: Place | None = None
    text: str | None = None
    is_blank: bool = False
    moment: float | None = None
    duration: float | None = None
    parent: bytes | None = None


def shown(raw: bytes) -> str:
    """Decode the bytes of a path for display; bytes that are not UTF-8 are replaced."""
    return raw.decode("utf-8", "replace")


def below(folder: Path, path: Path) -> bytes:
    """Return the exact bytes of a path relative to a folder, with forward slashes."""
    return os.fsencode(path.relative_to(folder).as_posix())
