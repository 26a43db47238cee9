"""Where a picture's bytes come from: a file of its own, a slice of an archive, or memory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sightline.errors import MediaError


class ImageSource(Protocol):
    """Anything that can name itself and hand over the encoded bytes of one picture."""

    @property
    def name(self) -> str:
        """How messages call this picture."""
        ...

    def read(self) -> bytes:
        """All encoded bytes; a `MediaError` where they cannot be had."""
        ...


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A picture in a file of its own."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise MediaError(self.name, error.strerror or str(error)) from error


@dataclass(frozen=True, slots=True)
class ImageSlice:
    """A picture inside an uncompressed archive: `size` bytes from `offset` of `archive`, called `member` there.

    Records of a data set hold slices, not bytes, so that a data set of any size can be listed, shuffled and sent to
    another process cheaply.
    """

    archive: Path
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.archive}:{self.member}"

    def read(self) -> bytes:
        try:
            with self.archive.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise MediaError(self.name, error.strerror or str(error)) from error
        if len(data) != self.size:
            raise MediaError(self.name, f"the archive ends after {len(data)} of {self.size} bytes")
        return data


@dataclass(frozen=True, slots=True)
class ImageBytes:
    """A picture already in memory: an upload, or a member of a compressed archive."""

    name: str
    data: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.data
