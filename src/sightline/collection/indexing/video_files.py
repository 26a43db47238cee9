"""A collection's video files: how they are recognised and identified, and the facts about their moments."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from sightline.collection.catalog.exif import Place
from sightline.collection.catalog.files import Facts
from sightline.errors import MediaError
from sightline.media.file_types import VIDEO_SUFFIXES
from sightline.media.source import open_regular, unreadable
from sightline.media.video import LARGEST_FILE, Moments, VideoFacts

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DecodedVideo:
    """A decoded video: facts about the file, and its moments."""

    about: VideoFacts
    moments: Moments

    def facts(self, digest: bytes) -> list[Facts]:
        """Return the facts about each moment; the first moment has the hash of the file."""
        about, place = self.about, None
        if about.latitude is not None and about.longitude is not None:
            place = Place(about.latitude, about.longitude)
        return [
            Facts(
                digest if number == 0 else hashlib.blake2b(digest + b"%d" % number, digest_size=32).digest(),
                about.width,
                about.height,
                about.taken,
                place,
                is_blank=is_blank,
                moment=seconds,
                duration=about.duration,
                parent=digest if number else None,
            )
            for number, (seconds, is_blank) in enumerate(zip(self.moments.seconds, self.moments.blank, strict=True))
        ]


def is_video_file(path: Path) -> bool:
    """Return whether a file is a video, judging by its name."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def file_digest(path: Path) -> bytes:
    """Return the content hash of a file that may not fit into memory."""
    digest = hashlib.blake2b(digest_size=32)
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST_FILE:
                raise MediaError(str(path), f"is {size:,} bytes, too large for a video", "Leave it out.")
            while part := file.read(_CHUNK_BYTES):
                digest.update(part)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    return digest.digest()
