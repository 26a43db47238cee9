"""Read images and archives from a URL, whole or in part: over HTTP, or from object storage through fsspec."""

import hashlib
import http.client
import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeVar

from sightline.errors import MediaError
from sightline.packages import install_extra

_TRIES = 3
_PAUSE = 0.5  # seconds before the second attempt, doubled before the third
_PATIENCE = 30.0
_AT_ONCE = 4 << 20
_LARGEST = 1 << 30
_PASSING = (429, 500, 502, 503, 504)  # temporary server errors
_VERSIONS = ("ETag", "etag", "LastModified", "mtime", "created")  # what different storage systems call a file's version
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ImageURL:
    """An image at a URL, or `size` bytes from `offset` of an archive there, named `member`."""

    url: str
    member: str = ""
    offset: int = 0
    size: int | None = None

    @property
    def name(self) -> str:
        """The URL, and the member's name."""
        return f"{self.url}/{self.member}" if self.member else self.url

    def read(self) -> bytes:
        """Read the image's bytes, with retries."""
        data = read_range(self.url, self.offset, self.size)
        if self.size is not None and len(data) != self.size:
            raise MediaError(self.name, f"only {len(data)} of {self.size} bytes arrived", "Upload it again.")
        return data


class RemoteInfo(NamedTuple):
    """The size of a file at a URL, and a number that changes when the file does."""

    size: int
    version: int


def look(url: str) -> RemoteInfo:
    """Look up the size and version of the file at a URL."""
    return _patiently(url, lambda: _head(url) if _is_http(url) else _info(url))


def read_range(url: str, offset: int = 0, size: int | None = None) -> bytes:
    """Read the file at a URL, or `size` bytes of it from `offset`."""
    if size == 0:
        return b""
    return _patiently(url, lambda: _get(url, offset, size) if _is_http(url) else _cat(url, offset, size))


def open_url(url: str, size: int) -> BinaryIO:
    """Open the file at a URL as a seekable file that is fetched a few megabytes at a time."""
    return io.BufferedReader(_Ranges(url, size), _AT_ONCE)


class _Ranges(io.RawIOBase):
    """The file at a URL, as an unbuffered file object."""

    def __init__(self, url: str, size: int) -> None:
        self._url, self._size, self._place = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._place)
        data = read_range(self._url, self._place, wanted) if wanted > 0 else b""
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _is_http(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def _patiently(url: str, ask: Callable[[], _Answer]) -> _Answer:
    """Make a request, retrying if the network or the server fails, but not if the file does not exist."""
    for failures in range(1, _TRIES + 1):
        try:
            return ask()
        except (FileNotFoundError, PermissionError) as error:
            raise MediaError(url, "not found, or access denied", "Check the URL and your permissions.") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            lasting = isinstance(error, urllib.error.HTTPError) and error.code not in _PASSING
            if lasting or isinstance(error, ValueError) or failures == _TRIES:
                raise MediaError(url, f"cannot be read: {error}", "Check the URL and the network.") from error
            time.sleep(_PAUSE * 2 ** (failures - 1))
    raise AssertionError("unreachable: the last failure raises an error")


def _head(url: str) -> RemoteInfo:
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        headers = answer.headers
        if headers["Content-Length"] is None:
            raise ValueError("the server does not report the size of the file")
        return RemoteInfo(int(headers["Content-Length"]), _number(headers["ETag"] or headers["Last-Modified"]))


def _get(url: str, offset: int, size: int | None) -> bytes:
    asked = {} if size is None else {"Range": f"bytes={offset}-{offset + size - 1}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=asked), timeout=_PATIENCE) as answer:
        if size is not None and answer.status != 206 and offset:
            raise ValueError("the server does not support range requests")
        data: bytes = answer.read(_LARGEST if size is None else size)
        return data


def _info(url: str) -> RemoteInfo:
    system, path = _storage(url)
    info = system.info(path)
    version = next((info[name] for name in _VERSIONS if info.get(name) is not None), None)
    return RemoteInfo(int(info["size"]), _number(version))


def _cat(url: str, offset: int, size: int | None) -> bytes:
    system, path = _storage(url)
    data: bytes = system.cat_file(path, offset, None if size is None else offset + size)
    return data


def _storage(url: str) -> tuple[Any, str]:
    """Return the fsspec file system for a URL, and the path within it."""
    try:
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(url)
        return found
    except ImportError as error:
        scheme = url.partition("://")[0]
        raise MediaError(
            url,
            f"reading {scheme}:// needs a package: {error}",
            f"{install_extra('scale')}, and the package it names.",
        ) from error


def _number(version: object) -> int:
    """Return a 62-bit number that identifies a version."""
    return int.from_bytes(hashlib.blake2b(str(version).encode(), digest_size=8).digest()) >> 2
