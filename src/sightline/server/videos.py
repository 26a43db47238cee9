"""The collection's videos, as sent to clients: files, whole or as byte ranges, and frames at their moments."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sightline.collection import Collection, Item
from sightline.collection.catalog.files import File, Stamp
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.media import ImageFile
from sightline.media.video_types import HEAD_BYTES, video_type
from sightline.server.decoders import DecoderPool
from sightline.server.image_files import CHANGED, content_hash, digest_of, open_regular_file
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError

_UNKNOWN = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class VideoFile:
    """An open video file whose content is still what was indexed."""

    path: Path
    file: BinaryIO
    opened: os.stat_result

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to this file, unchanged since it was opened."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(now, self.opened) and Stamp.of(now).matches(Stamp.of(self.opened))

    @property
    def size(self) -> int:
        """Size in bytes."""
        return os.fstat(self.file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    @property
    def content_type(self) -> str:
        """The content type of the video; `application/octet-stream` if unknown."""
        kind = video_type(os.pread(self.file.fileno(), HEAD_BYTES, 0))
        return kind.content_type if kind else _UNKNOWN


def open_video(collection: Collection, item: Item, limits: Limits) -> VideoFile:
    """Open one of the files of a video; raises an error if none has the content that was indexed."""
    if not item.is_video:
        raise RefusedError(404, f"item {item.id} is not a video")
    wanted = content_hash(collection, item)
    for file in item.files:
        source = source_of(file)
        if not isinstance(source, ImageFile):
            continue
        with contextlib.suppress(OSError):
            opened = open_regular_file(source.path, limits.video_bytes)
            if opened is not None:
                found = os.fstat(opened.fileno())
                if _is_unchanged(file, found) or digest_of(opened) == wanted:
                    return VideoFile(source.path, opened, found)
                opened.close()
    raise _unavailable(item)


def video_frame(
    collection: Collection, item: Item, limits: Limits, decoders: DecoderPool, side: int | None, quality: int
) -> bytes:
    """Return the frame of a video at the item's moment, as a JPEG."""
    video = open_video(collection, item, limits)
    with video.file:
        found = decoders.frame(video.path, f"item {item.id}", item.moment or 0.0, quality, side)
        if not video.is_in_place:  # the decoder, which opens the path itself, may have read another video
            raise _unavailable(item)
        return found


def _unavailable(item: Item) -> RefusedError:
    return RefusedError(404, f"the video of item {item.id} is not available", CHANGED)


def nearest_moment(collection: Collection, item: Item, seconds: float | None) -> float:
    """Return the moment of a video nearest to a time in seconds; by default, the first moment."""
    moments = collection.catalog.moments()
    every = list(moments.of([item.id]).get(item.id, {}).values()) if moments else []
    if not every:
        return item.moment or 0.0
    return every[0] if seconds is None else min(every, key=lambda one: abs(one - seconds))


def _is_unchanged(file: File, found: os.stat_result) -> bool:
    """Return whether a file appears unchanged since it was read, judging by its size and times.

    Reading a long video in full for every request would be too slow.
    """
    return file.stamp is not None and file.stamp.ctime_ns is not None and file.stamp.matches(Stamp.of(found))
