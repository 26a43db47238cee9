"""Files and items of a collection as the catalog describes them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sightline.collection.catalog.exif import Place
from sightline.media import ImageSource

Status = Literal["ready", "broken"]
URL_LIST_SUFFIX = ".urls"
"""Suffix of a list of URLs, whose images are read over the network."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Size and times of a file when it was read; while they stay the same, it is not read again.

    ctime_ns: catches changes that set the modification time back; None if unknown.
    """

    size: int
    mtime_ns: int
    ctime_ns: int | None = None

    def matches(self, other: "Stamp") -> bool:
        """Whether both are of the same state of a file."""
        if (self.size, self.mtime_ns) != (other.size, other.mtime_ns):
            return False
        return None in (self.ctime_ns, other.ctime_ns) or self.ctime_ns == other.ctime_ns


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A file, or a line of one, that has to be read.

    root: the catalog's number of the folder or file of texts. raw: identifies the file within its root; for an image,
        the exact bytes of its path below the root. path: the same as text. where: its exact path.
    stamp: None if the file must be read again at the next run, even if it looks the same.
    text, line, key: of a text, its content, line and id. Of an image in a shard, `key` is its position; see
        `shards_and_urls.Span`.
    problem: what is wrong with it, if that is known already.
    source: where its bytes are read from, if it is not a file of its own.
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
        """Its name in reports."""
        if self.source is not None:
            return self.source.name
        return shown(os.fsencode(self.where)) + (f":{self.line}" if self.line else "")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a collection, or a line of one.

    root: the folder, or the file of texts, that was indexed.
    path: below the root, with forward slashes, for people and filters; `captions.jsonl:12` for a text.
    where: its exact path, even if its name is not valid text; for a text, the path of the file of texts.
    reason: why it is broken.
    line, key: of a text, its line and the id that it has there. Of an image in a shard, `key` is its position.
    is_trusted: False if a collection that was not made by this user refers to a file outside its own folder, or to
        the network.
    """

    root: Path
    path: str
    where: Path
    status: Status = "ready"
    reason: str = ""
    line: int | None = None
    key: str | None = None
    is_trusted: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """One search result: the content of a file, or of several if there are copies.

    width, height: in pixels, upright. taken: when, in ISO 8601. place: where. text: of a text, all of it.
    """

    id: int
    files: tuple[File, ...]
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    place: Place | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a content besides its vectors; `hash` identifies it.

    is_blank: an image of one colour, or a tiny one, which searches put last.
    """

    hash: bytes
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    place: Place | None = None
    text: str | None = None
    is_blank: bool = False


def shown(raw: bytes) -> str:
    """A path's bytes as text; bytes that are not UTF-8 are replaced."""
    return raw.decode("utf-8", "replace")


def below(folder: Path, path: Path) -> bytes:
    """The exact bytes of a path below a folder, with forward slashes."""
    return os.fsencode(path.relative_to(folder).as_posix())
