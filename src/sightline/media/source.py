"""Sources of an image's bytes: a file, a slice of an archive, or memory."""

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import numpy.typing as npt

from sightline.errors import MediaError

_LARGEST_FILE = 4 << 30


class ImageSource(Protocol):
    """Anything with a name that returns the encoded bytes of one image."""

    @property
    def name(self) -> str:
        """The name used in messages."""
        ...

    def read(self) -> bytes:
        """Read all encoded bytes; raises a `MediaError` if that fails."""
        ...


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image file."""

    path: Path

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self.path)

    def read(self) -> bytes:
        """Read the whole file, unless it is too large to be an image."""
        try:
            with open_regular(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size > _LARGEST_FILE:
                    raise MediaError(self.name, f"is {size:,} bytes, too large for an image", "Leave it out.")
                data = file.read(size + 1)  # read() allocates as much as it is asked for
                return data if len(data) <= size else data + file.read(max(0, _LARGEST_FILE - len(data)))
        except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
            raise unreadable(self.name, error) from error


@dataclass(frozen=True, slots=True)
class ImageSlice:
    """An image in an uncompressed archive: `size` bytes from `offset` of `archive`, under the name `member`.

    Records of a data set contain slices, not bytes, so that a data set of any size can be listed, shuffled and sent to
    another process cheaply.
    """

    archive: Path
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        """The archive's path and the member's name."""
        return f"{self.archive}:{self.member}"

    def read(self) -> bytes:
        """Read only the slice."""
        try:
            with open_regular(self.archive) as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except (OSError, ValueError) as error:
            raise unreadable(self.name, error) from error
        if len(data) != self.size:
            reason = f"the archive ends after {len(data)} of {self.size} bytes"
            raise MediaError(self.name, reason, "Copy or download the archive again.")
        return data


@dataclass(frozen=True, slots=True)
class ImageBytes:
    """An image in memory: an upload, or a member of a compressed archive."""

    name: str
    data: bytes = field(repr=False)

    def read(self) -> bytes:
        """Return the bytes."""
        return self.data


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image that was already converted to model input: float32 [3, size, size]."""

    name: str
    pixels: npt.NDArray[np.float32] = field(repr=False)

    def read(self) -> bytes:
        """Raise an error, because only the model input has been kept."""
        raise MediaError(self.name, "has been decoded already")


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file, or a link to one; pipes and devices, which might never end, raise an error."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def unreadable(name: str, error: OSError | ValueError) -> MediaError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return MediaError(name, "no such file", "Check the path; the file may have been moved or deleted.")
    if isinstance(error, PermissionError):
        return MediaError(
            name, "cannot be read: permission denied", "Give yourself permission to read it, or leave it out."
        )
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return MediaError(name, f"cannot be read: {said}", "Check the path and the disk it is on.")
