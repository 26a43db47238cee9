"""Pictures of the collection on their way out: the very bytes that were indexed, or small versions of them."""

import contextlib
import hashlib
import io
import itertools
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from sightline.cache import cache_folder
from sightline.collection import Collection, Item
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.errors import MediaError
from sightline.files import write_atomic
from sightline.media import ImageBytes, ImageFile, ImageSource, open_image
from sightline.media.file_types import detect_type
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError, not_found

SIDES = (160, 320, 640)
"""How long the longer side of a thumbnail can be."""

_SHOWN_AS = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "GIF": "image/gif",
    "WEBP": "image/webp",
    "AVIF": "image/avif",
    "BMP": "image/bmp",
}
_THUMBNAIL_QUALITY, _PICTURE_QUALITY = 80, 90
_TIDY_EVERY = 1_000
_TOO_OLD_TO_TRUST = "It was changed, moved or deleted since it was indexed: index again."


@dataclass(frozen=True, slots=True)
class ImageContent:
    """A picture ready to be sent."""

    data: bytes
    content_type: str


def original_image(collection: Collection, item: Item, limits: Limits) -> ImageContent:
    """The picture of an item as its file has it; one of a kind that browsers do not show is made a JPEG."""
    data = _indexed_bytes(collection, item, limits)
    shown_as = _SHOWN_AS.get(detect_type(data).decoder or "")
    if shown_as:
        return ImageContent(data, shown_as)
    return ImageContent(
        _jpeg(open_image(_source(item, data), max_pixels=limits.pixels), _PICTURE_QUALITY), "image/jpeg"
    )


class Thumbnails:
    """Small versions of pictures, kept on the disk by the hash of what they show."""

    def __init__(self, limits: Limits, folder: Path | None = None) -> None:
        self._limits = limits
        self._folder = folder or cache_folder() / "thumbnails"
        self._made_so_far = itertools.count()

    def get(self, collection: Collection, item: Item, side: int) -> ImageContent:
        """The thumbnail of an item, made where there is none yet."""
        place = self._place(_hash(collection, item), side)
        try:
            return ImageContent(place.read_bytes(), "image/jpeg")
        except OSError:
            data = self._made(collection, item, side)
        _keep(place, data)
        if next(self._made_so_far) % _TIDY_EVERY == 0:
            self._tidy()
        return ImageContent(data, "image/jpeg")

    def _tidy(self) -> None:
        """Delete the thumbnails that were made first, until the rest takes no more than it may."""
        try:
            there = [(path, path.stat()) for path in self._folder.glob("*/*.jpg")]
        except OSError:
            return
        size = sum(found.st_size for _, found in there)
        for path, found in sorted(there, key=lambda one: one[1].st_mtime_ns):
            if size <= self._limits.thumbnail_bytes:
                return
            path.unlink(missing_ok=True)
            size -= found.st_size

    def _place(self, hash: bytes, side: int) -> Path:
        return self._folder / hash.hex()[:2] / f"{hash.hex()[2:]}-{side}.jpg"

    def _made(self, collection: Collection, item: Item, side: int) -> bytes:
        data = _indexed_bytes(collection, item, self._limits)
        image = open_image(_source(item, data), at_least=side)
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        return _jpeg(image, _THUMBNAIL_QUALITY)


def etag(collection: Collection, item: Item, form: str) -> str:
    """What changes only when the picture does."""
    return f'"{_hash(collection, item).hex()[:32]}-{form}"'


def is_known(etag: str, header: str | None) -> bool:
    """Whether a client says, in If-None-Match, that it has this already."""
    return header is not None and any(one.strip().removeprefix("W/") in (etag, "*") for one in header.split(","))


def _hash(collection: Collection, item: Item) -> bytes:
    found = collection.catalog.hash_of(item.id)
    if found is None:
        raise not_found(item.id)
    return found


def _indexed_bytes(collection: Collection, item: Item, limits: Limits) -> bytes:
    """The bytes of one of the item's files; only if they are those that were indexed, whatever is there by now."""
    if collection.kind != "images":
        raise RefusedError(404, f"item {item.id} is a text and has no picture")
    wanted = _hash(collection, item)
    for data in _readable([source_of(file) for file in item.files], limits.picture_bytes):
        if hashlib.blake2b(data, digest_size=32).digest() == wanted:
            return data
    raise RefusedError(404, f"the picture of item {item.id} cannot be had", _TOO_OLD_TO_TRUST)


def _readable(sources: Iterable[ImageSource], most: int) -> Iterable[bytes]:
    """The contents of those that are files, and not too large, or parts of shards, or at a URL of a list."""
    for source in sources:
        with contextlib.suppress(OSError, MediaError):
            data = _file(source.path, most) if isinstance(source, ImageFile) else source.read()
            if data is not None and len(data) <= most:
                yield data


def _file(path: Path, most: int) -> bytes | None:
    """The content of a file that is not too large; never waits for a pipe or a device."""
    with open(path, "rb", opener=_without_waiting) as file:
        found = os.fstat(file.fileno())
        return file.read(most) if stat.S_ISREG(found.st_mode) and found.st_size <= most else None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _source(item: Item, data: bytes) -> ImageBytes:
    return ImageBytes(f"item {item.id}", data)


def _jpeg(image: Image.Image, quality: int) -> bytes:
    data = io.BytesIO()
    try:
        image.save(data, "JPEG", quality=quality)
    except (OSError, ValueError) as error:
        raise MediaError("the picture", f"cannot be made a JPEG ({error})") from error
    return data.getvalue()


def _keep(place: Path, data: bytes) -> None:
    """Write a thumbnail whole or not at all; where nothing can be written, it is made again next time."""
    try:
        folder = place.parent.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # one that an earlier version made
        place.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(place, data, mode=0o600, sync=False)
    except OSError:
        return
