"""Many images as one ZIP archive, created while it is sent, without holding it in memory or on disk."""

import io
import re
import unicodedata
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sightline.collection import Item
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.media import ImageSource
from sightline.server.answers import folder_name, root_names
from sightline.server.image_files import open_content, read_chunk
from sightline.server.library import Member
from sightline.server.limits import Limits
from sightline.server.worker_pool import WorkerPool

_PART_BYTES = 2**18
_MISSING = "MISSING.txt"
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\\<>:"|?*]')
_RESERVED = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[1-9¹²³]) *(\.|$)", re.IGNORECASE)
"""The names of devices on Windows, with or without an extension."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in an archive: its name there, the sources to read it from, and the expected hash of its content."""

    name: str
    sources: tuple[ImageSource, ...]
    hash: bytes


def entries(chosen: Sequence[tuple[Member, Sequence[Item]]]) -> list[Entry]:
    """Return the files to put in an archive; duplicate names get a number.

    Names that differ only in case or in the form of accents are duplicates: some systems would overwrite one of them.
    """
    found: list[Entry] = []
    unique = UniqueNames()
    for member, items in chosen:
        roots = set(root_names(member).values())
        hashes = member.collection.catalog.hashes_of([item.id for item in items])
        for item in items:
            first = item.files[0]
            root = [name for name in [folder_name(first.root)] if name in roots]
            name = unique.of(safe_name([*root, *first.path.split("/")]))
            found.append(Entry(name, tuple(source_of(file) for file in item.files), hashes[item.id]))
    return found


def safe_name(parts: Sequence[str]) -> str:
    """Return the name in an archive of a file with these folders and this name, which any system can unpack.

    Characters that Windows refuses or takes for slashes become underscores, spaces and dots at the end of a name are
    dropped, and names of devices begin with an underscore. Nothing leads out of the folder.

    >>> safe_name(["Trip", "..", "what?", "con.jpg"])
    'Trip/what_/_con.jpg'
    """
    return "/".join(_safe(part) for part in parts if part not in ("", ".", ".."))


def _safe(part: str) -> str:
    plain = _UNSAFE.sub("_", part).rstrip(" .")
    return f"_{plain}" if not plain or _RESERVED.match(plain) else plain


class UniqueNames:
    """Makes names unique by numbering them."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}  # by key: the last number used

    def of(self, name: str) -> str:
        """Return a name itself if it is new, and otherwise with a number."""
        first, path, unique = _key(name), PurePosixPath(name), name
        while (key := _key(unique)) in self._used:
            self._numbers[first] = self._numbers.get(first, 1) + 1
            unique = str(path.with_stem(f"{path.stem} ({self._numbers[first]})"))
        self._used.add(key)
        return unique


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def archive(files: Sequence[Entry], limits: Limits, unknown: Sequence[int] = ()) -> Iterator[bytes]:
    """Yield the chunks of a ZIP archive of uncompressed images.

    `MISSING.txt` lists files that cannot be read, and the requested ids that are `unknown`.
    """
    target = _Target()
    missing: list[str] = []
    with zipfile.ZipFile(target, "w") as made:
        for file in files:
            content = open_content(file.sources, file.hash, limits)
            if content is None:
                missing.append(file.name)
                continue
            with made.open(zipfile.ZipInfo(file.name), "w", force_zip64=True) as entry:
                if isinstance(content, bytes):
                    entry.write(content)
                else:
                    with content:
                        at = 0
                        while part := read_chunk(content, at, _PART_BYTES):
                            entry.write(part)
                            at += len(part)
                            yield target.taken()
            yield target.taken()
        if missing or unknown:
            made.writestr(_MISSING, _missing_text(missing, unknown))
    yield target.taken()


def _missing_text(files: Sequence[str], unknown: Sequence[int]) -> str:
    lines = ["Changed, moved or deleted since they were indexed:", *files] if files else []
    if unknown:
        lines.append(f"No item has these ids: {', '.join(map(str, unknown))}")
    return "\n".join(lines) + "\n"


class _Target(io.RawIOBase):
    """A write-only buffer that is emptied when read. It cannot seek, so a file's size is written after the file."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._parts.append(bytes(data))  # type: ignore[call-overload]
        return len(self._parts[-1])

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ArchiveResponse(Response):
    """Sends an archive in chunks; each chunk is created once the client has received the previous one."""

    def __init__(self, parts: Iterator[bytes], pool: WorkerPool) -> None:
        self._parts, self._pool = parts, pool
        headers = {"Content-Disposition": 'attachment; filename="sightline.zip"'}
        super().__init__(headers=headers, media_type="application/zip")
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the archive."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        while (part := await self._pool.run(next, self._parts, None)) is not None:
            if part:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
