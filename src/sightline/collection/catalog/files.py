"""What is known of files: where they are, how they looked when they were read, and what was in them."""

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
    """A file, or a line of one, that is there and has to be read.

    root: the catalog's number of the folder or file of texts. raw: what tells the file from all others of the root, for
        a picture the exact bytes of its path below the root. path: the same as text. where: its exact path.
    stamp: None where the file is to be read again at the next run, however it looks then.
    text, line, key: of a text, what it says, its line, and the id it was given there. Of a picture in a shard, `key` is
        where it lies there: see `listed.Span`.
    problem: what is wrong with it, where that is known already.
    source: what its bytes are read from, where it is no file of its own.
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
        """How reports call it."""
        if self.source is not None:
            return self.source.name
        return shown(os.fsencode(self.where)) + (f":{self.line}" if self.line else "")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a collection, or a line of one.

    root: the folder, or the file of texts, that was indexed.
    path: below the root, with forward slashes, as text for people and filters; `captions.jsonl:12` for a text.
    where: its exact path, also where its name is no text; for a text, that of the file of texts.
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
    """One thing to be found: the content of one or, where there are copies, of several files.

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
    """What a content is besides its vectors; `hash` tells it from every other."""

    hash: bytes
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    place: Place | None = None
    text: str | None = None


def shown(raw: bytes) -> str:
    """A path's bytes as text: what is no UTF-8 is replaced."""
    return raw.decode("utf-8", "replace")


def below(folder: Path, path: Path) -> bytes:
    """The exact bytes of a path below a folder, with forward slashes."""
    return os.fsencode(path.relative_to(folder).as_posix())
