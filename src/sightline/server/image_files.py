"""The collection's images, as sent to clients: the exact bytes that were indexed, or thumbnails."""

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sightline.cache import cache_folder
from sightline.collection import Collection, Item
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.errors import MediaError
from sightline.files import write_atomic
from sightline.media import ImageBytes, ImageFile, ImageSource
from sightline.media.file_types import VIDEO_SUFFIXES, detect_type
from sightline.server.decoders import DecoderPool
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError, not_found
from sightline.server.worker_pool import stop_if_cancelled

SIDES = (160, 320, 640)
"""The allowed lengths of a thumbnail's longer side, in pixels."""

_LONGEST = 4  # times the requested side, for a panorama
_THUMBNAIL_QUALITY, _ORIGINAL_QUALITY = 80, 90
_TIDY_EVERY = 1_000
_STREAMED_BYTES = 2**20  # files of at least this size are sent without reading them into memory
_CHUNK_BYTES = 2**18
_HEAD_BYTES = 2**16  # enough to detect the type of a file
CHANGED = "It has been changed, moved or deleted since it was indexed; index again."


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image to send: its bytes, or an open file."""

    content_type: str
    data: bytes = b""
    file: BinaryIO | None = None

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data) if self.file is None else os.fstat(self.file.fileno()).st_size

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.file is not None:
            self.file.close()


def original_image(collection: Collection, item: Item, limits: Limits, decoders: DecoderPool) -> ImageContent:
    """Return the image of an item as it was indexed; types that browsers do not show are converted to JPEG.

    If the file is not available, returns the picture kept in the store, which may be a thumbnail.
    """
    found = _content(collection, item, limits)
    head = found[:_HEAD_BYTES] if isinstance(found, bytes) else os.pread(found.fileno(), _HEAD_BYTES, 0)
    content_type = detect_type(head).content_type
    if content_type is None:
        return ImageContent("image/jpeg", decoders.jpeg(_source(collection, item, found), _ORIGINAL_QUALITY))
    if isinstance(found, bytes):
        return ImageContent(content_type, found)
    if os.fstat(found.fileno()).st_size < _STREAMED_BYTES:
        return ImageContent(content_type, _source(collection, item, found).data)
    return ImageContent(content_type, file=found)


def camera(collection: Collection, item: Item, limits: Limits, decoders: DecoderPool) -> dict[str, str]:
    """Return the camera data in an item's image."""
    return decoders.camera(_source(collection, item, _indexed_content(collection, item, limits)))


def read_chunk(file: BinaryIO, offset: int, count: int) -> bytes:
    """Read at most `count` bytes of an open file, starting at `offset`; none at the end of the file."""
    return os.pread(file.fileno(), min(count, _CHUNK_BYTES), offset)


class Thumbnails:
    """Thumbnails of images, cached on disk by content hash; only the owner of the cache can read them."""

    def __init__(self, limits: Limits, decoders: DecoderPool, folder: Path | None = None) -> None:
        self._limits, self._decoders = limits, decoders
        self._folder = folder or cache_folder() / "thumbnails"
        self._made_so_far = itertools.count()

    def get(
        self, collection: Collection, item: Item, side: int, frame: Callable[[int, int], bytes] | None = None
    ) -> ImageContent:
        """Return the thumbnail of an item, created if missing.

        frame: for a video, a function that returns the frame to show as a JPEG, given the length of its longer side and
            the JPEG quality.
        """
        form = f"{side}" if item.moment is None else f"{side}-{item.moment:g}"
        place = self._place(content_hash(collection, item), form)
        try:
            return ImageContent("image/jpeg", place.read_bytes())
        except OSError:
            if frame is not None:
                data = frame(side, _THUMBNAIL_QUALITY)
            else:
                source = _source(collection, item, _content(collection, item, self._limits))
                data = self._decoders.thumbnail(source, side, _THUMBNAIL_QUALITY)
        _keep(place, data)
        if next(self._made_so_far) % _TIDY_EVERY == 0:
            self.delete_oldest()
        return ImageContent("image/jpeg", data)

    @staticmethod
    def longer_side(item: Item, side: int) -> int:
        """Return the length of the longer side of an item's thumbnail: `side`, or more for a panorama.

        The page shows the middle of a panorama, which is sharp only if the shorter side is at least half of `side`.
        """
        if not item.width or not item.height:
            return side
        ratio = max(item.width, item.height) / min(item.width, item.height)
        return round(side * min(_LONGEST, max(1.0, ratio / 2)))

    def delete_oldest(self) -> None:
        """Delete the oldest thumbnails until the size of the rest is within the limit."""
        try:
            kept = [(path, path.stat()) for path in self._folder.glob("*/*.jpg")]
        except OSError:
            return
        size = sum(found.st_size for _, found in kept)
        for path, found in sorted(kept, key=lambda one: one[1].st_mtime_ns):
            if size <= self._limits.thumbnail_bytes:
                return
            path.unlink(missing_ok=True)
            size -= found.st_size

    def _place(self, hash: bytes, form: str) -> Path:
        return self._folder / hash.hex()[:2] / f"{hash.hex()[2:]}-{form}.jpg"


def etag(collection: Collection, item: Item, form: str) -> str:
    """Return the entity tag of an image, which changes only if the image does."""
    return f'"{content_hash(collection, item).hex()[:32]}-{form}"'


def is_known(etag: str, header: str | None) -> bool:
    """Return whether If-None-Match says that the client already has this version."""
    return header is not None and any(one.strip().removeprefix("W/") in (etag, "*") for one in header.split(","))


def content_hash(collection: Collection, item: Item) -> bytes:
    """Return the hash of an item's content."""
    found = collection.catalog.hash_of(item.id)
    if found is None:
        raise not_found(item.id)
    return found


def _content(collection: Collection, item: Item, limits: Limits) -> bytes | BinaryIO:
    """Return the content of one of an item's files or, if none is available, the picture kept in the store."""
    try:
        return _indexed_content(collection, item, limits)
    except RefusedError:
        stored = collection.stored_image(item.id)
        if stored is None:
            raise
        return stored


def _indexed_content(collection: Collection, item: Item, limits: Limits) -> bytes | BinaryIO:
    """Return one of an item's files, open or as bytes; raises an error if none has the content that was indexed."""
    if collection.kind != "images":
        raise RefusedError(404, f"item {item.id} is a text and has no picture")
    found = open_content([source_of(file) for file in item.files], content_hash(collection, item), limits)
    if found is not None:
        return found
    raise _unavailable(item)


def _unavailable(item: Item) -> RefusedError:
    return RefusedError(404, f"the picture of item {item.id} is not available", CHANGED)


def open_content(sources: Sequence[ImageSource], wanted: bytes, limits: Limits) -> bytes | BinaryIO | None:
    """Return the first of these sources with this content hash, as an open file or bytes; None if there is none."""
    for found in _readable(sources, limits):
        with contextlib.ExitStack() as unless_given:
            if not isinstance(found, bytes):
                unless_given.callback(found.close)
            if digest_of(found) == wanted:  # raises if the client has left
                unless_given.pop_all()
                return found
    return None


def _readable(sources: Sequence[ImageSource], limits: Limits) -> Iterator[bytes | BinaryIO]:
    """Yield readable sources that are not too large: open regular files, and bytes of images in shards or at URLs."""
    for source in sources:
        is_video = isinstance(source, ImageFile) and source.path.suffix.lower() in VIDEO_SUFFIXES
        most = limits.video_bytes if is_video else limits.image_bytes
        with contextlib.suppress(OSError, MediaError):
            found = open_regular_file(source.path, most) if isinstance(source, ImageFile) else source.read()
            if found is not None and (not isinstance(found, bytes) or len(found) <= most):
                yield found


def open_regular_file(path: Path, most: int) -> BinaryIO | None:
    """Open a file; None if it is not a regular file or is too large. Never blocks on a pipe or a device."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (given to the caller)
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return file
    file.close()
    return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def digest_of(content: bytes | BinaryIO) -> bytes:
    """Return the content hash as used in the catalog; a file is read in chunks."""
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=32).digest()
    digest = hashlib.blake2b(digest_size=32)
    while part := content.read(_STREAMED_BYTES):
        stop_if_cancelled()
        digest.update(part)
    return digest.digest()


def _source(collection: Collection, item: Item, content: bytes | BinaryIO) -> ImageBytes:
    """Return the content of an item's image in memory; raises an error if the file was written to in the meantime."""
    if not isinstance(content, bytes):
        with content:
            content.seek(0)
            data = content.read()
        if digest_of(data) != content_hash(collection, item):
            raise _unavailable(item)
        content = data
    return ImageBytes(f"item {item.id}", content)


def _keep(place: Path, data: bytes) -> None:
    """Write a thumbnail atomically; if that fails, it is created again next time."""
    try:
        folder = place.parent.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # an earlier version may have created it with other permissions
        place.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(place, data, mode=0o600, sync=False)
    except OSError:
        return
