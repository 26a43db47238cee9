"""Read a video's properties, and the moments at which something new comes into view (extra `video`)."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.errors import MediaError, MissingDecoderError
from sightline.media.diagnosis import COPY_AGAIN
from sightline.media.frame import FramedImage
from sightline.media.limits import check_pixels
from sightline.media.pixels import Preprocess, fit, is_blank
from sightline.media.scenes import GREY_SIZE, choose
from sightline.media.source import open_regular
from sightline.media.video_types import HEAD_BYTES, video_type
from sightline.packages import install_extra

INSTALL = install_extra("video")
MOST_MOMENTS = 64
LARGEST_FILE = 64 << 30
"""Maximum size of a video file in bytes; larger files are refused."""

_CANDIDATES = 240  # maximum number of frames to compare
_SHORTEST_STEP = 1.0  # minimum seconds between two compared frames
_SEEK_STEP = 5.0  # if compared frames are at least this many seconds apart, seeking is faster than reading on
_SPARSE = 8.0  # if key frames are more than this many seconds apart, other frames are decoded as well
_MOST_ERRORS = 50
_BUFFER_BYTES = 1 << 18
_OLDEST_YEAR = 1980  # cameras without a clock write 1904 or 1970
_TIMES = ("com.apple.quicktime.creationdate", "creation_time", "date")
_PLACES = ("com.apple.quicktime.location.ISO6709", "location", "location-eng")


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """A video's width and height in pixels, upright, duration in seconds, time in ISO 8601 and place in degrees."""

    width: int
    height: int
    duration: float
    taken: str | None = None
    latitude: float | None = None
    longitude: float | None = None


class Moments(NamedTuple):
    """Moments of a video: their times in seconds, whether each is blank, and their pixels, uint8 [n, size, size, 3]."""

    seconds: list[float]
    blank: list[bool]
    pixels: npt.NDArray[np.uint8]


class _Candidate(NamedTuple):
    seconds: float
    grey: npt.NDArray[np.uint8]
    pixels: npt.NDArray[np.uint8]
    is_blank: bool


def is_installed() -> bool:
    """Return whether the package of the extra `video` is installed."""
    return find_spec("av") is not None


def read_moments(
    path: Path, name: str, preprocess: Preprocess, *, max_pixels: int, cpu_seconds: float
) -> tuple[VideoFacts, Moments]:
    """Read a video's properties, and up to 64 moments in chronological order, at the size that a model expects.

    cpu_seconds: when this much CPU time has been used, the moments are chosen from the frames decoded so far.

    Key frames are compared first: they can be decoded on their own, and encoders put them where the scene changes. If
    a video has few key frames, other frames are decoded as well.
    """
    with _opened(path, name, max_pixels) as video:
        deadline = time.process_time() + cpu_seconds
        step = max(_SHORTEST_STEP, video.duration / _CANDIDATES)
        frames = video.sought(step, deadline) if step >= _SEEK_STEP else video.in_order(step, deadline, keys=True)
        found = [_candidate(video, frame, preprocess) for frame in frames]
        if step < _SEEK_STEP and video.duration > _SPARSE * len(found):
            video.rewind()
            frames = video.in_order(max(step, 2 * _SHORTEST_STEP), deadline, keys=False)
            found = [_candidate(video, frame, preprocess) for frame in frames] or found
        if not found:
            raise MediaError(name, "is a video in which no frame can be decoded", COPY_AGAIN)
        chosen = choose(
            [one.seconds for one in found], np.stack([one.grey for one in found]), [one.is_blank for one in found],
            MOST_MOMENTS,
        )  # fmt: skip
        kept = [found[place] for place in chosen]
        last = max(video.duration, video.last)
        return video.facts(last), Moments(
            [round(one.seconds, 2) for one in kept],
            [one.is_blank for one in kept],
            np.stack([one.pixels for one in kept]),
        )


def frame_at(path: Path, name: str, seconds: float, *, max_pixels: int) -> Image.Image:
    """Return the frame that a video shows at a given time in seconds, upright."""
    with _opened(path, name, max_pixels) as video:
        video.seek(seconds)
        last = None
        for last in video.frames(keys=False):
            if video.seconds_of(last) >= seconds - 0.02:
                break
        if last is None:
            raise MediaError(name, f"is a video that has no frame at {seconds:g} s", COPY_AGAIN)
        return video.image(last, None)


class _Video:
    """An open video. last: the time of the latest frame decoded so far."""

    def __init__(self, container: Any, stream: Any, name: str, max_pixels: int) -> None:
        self._container, self._stream = container, stream
        self._name, self._max_pixels = name, max_pixels
        start = stream.start_time
        self._start = 0.0 if start is None else float(start * stream.time_base)
        own = None if stream.duration is None else float(stream.duration * stream.time_base)
        whole = None if container.duration is None else container.duration / 1e6
        self.duration = max(0.0, own or whole or 0.0)
        self.last = 0.0
        self._wanted = -1.0  # seconds; frames before this time are not needed
        self._sides: tuple[int, int] | None = None

    def facts(self, duration: float) -> VideoFacts:
        """Return the properties of the video; its width and height are known only after a frame has been decoded."""
        width, height = self._sides or (0, 0)
        noted = {**self._stream.metadata, **self._container.metadata}
        taken = next(filter(None, (_taken(noted.get(key, "")) for key in _TIMES)), None)
        latitude, longitude = next(filter(None, (_place(noted.get(key, "")) for key in _PLACES)), (None, None))
        return VideoFacts(width, height, round(duration, 2), taken, latitude, longitude)

    def in_order(self, step: float, deadline: float, *, keys: bool) -> Iterator[Any]:
        """Yield frames at least `step` seconds apart, from the current position to the end."""
        for frame in self.frames(keys=keys):
            if self.seconds_of(frame) < self._wanted:
                continue
            yield frame
            self._wanted = self.seconds_of(frame) + step
            if time.process_time() > deadline:
                return

    def sought(self, step: float, deadline: float) -> Iterator[Any]:
        """Seek through a long video in steps of `step` seconds, and yield the key frame at or before each."""
        before = -1.0
        for seconds in np.arange(0.0, self.duration, step).tolist():
            self.seek(seconds)
            frame = next(self.frames(keys=True), None)
            if frame is not None and self.seconds_of(frame) > before:
                before = self.seconds_of(frame)
                yield frame
            if time.process_time() > deadline:
                return

    def frames(self, *, keys: bool) -> Iterator[Any]:
        """Decode frames; skips damaged parts and, with `keys`, key frames before the next one that is needed."""
        import av

        self._stream.codec_context.skip_frame = "NONKEY" if keys else "DEFAULT"
        errors = 0
        try:
            for packet in self._container.demux(self._stream):
                wanted = self._start + self._wanted
                if keys and packet.pts is not None and float(packet.pts * packet.time_base) < wanted:
                    continue
                try:
                    decoded = packet.decode()
                except (av.FFmpegError, ValueError):
                    errors += 1
                    if errors > _MOST_ERRORS:
                        return
                    continue
                for frame in decoded:
                    check_pixels(self._name, (frame.width, frame.height), self._max_pixels)
                    self.last = max(self.last, self.seconds_of(frame))
                    yield frame
        except (av.FFmpegError, OSError, ValueError):  # the video is truncated: use the frames before that
            return

    def seek(self, seconds: float) -> None:
        """Go to the key frame at or before a time or, if that is impossible, to the beginning."""
        import av

        try:
            self._container.seek(round((self._start + seconds) * 1e6), backward=True)
        except av.FFmpegError:
            self.rewind()

    def rewind(self) -> None:
        """Go to the beginning, if the container can seek."""
        import av

        self._wanted = -1.0
        try:
            self._container.seek(0, any_frame=True)
        except av.FFmpegError:
            return

    def seconds_of(self, frame: Any) -> float:
        """Return the seconds from the beginning of the video to a frame."""
        return 0.0 if frame.time is None else max(0.0, float(frame.time) - self._start)

    def image(self, frame: Any, short: int | None) -> Image.Image:
        """Return a frame in RGB, upright, with square pixels and a short side of at most `short`."""
        ratio = float(self._stream.sample_aspect_ratio or 1)
        width, height = max(1, round(frame.width * (ratio if 0.1 < ratio < 10 else 1))), frame.height
        turned = round((frame.rotation or 0) / 90) % 4
        self._sides = (height, width) if turned % 2 else (width, height)
        scale = 1.0 if short is None else min(1.0, short / min(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        image: Image.Image = frame.to_image(width=size[0], height=size[1], interpolation="AREA")
        return image.rotate(90 * turned, expand=True) if turned else image


@contextmanager
def _opened(path: Path, name: str, max_pixels: int) -> Iterator[_Video]:
    try:
        import av
    except ImportError as error:
        raise MissingDecoderError(name, f"is a video, which needs another package: {INSTALL}", INSTALL) from error
    try:
        with open_regular(path) as file:
            kind = video_type(file.read(HEAD_BYTES))
            if kind is None:
                raise MediaError(name, "is not a known kind of video", COPY_AGAIN)
            file.seek(0)
            options = {"max_pixels": str(max_pixels)}
            with av.open(
                file, format=kind.demuxer, options=options, metadata_errors="replace", buffer_size=_BUFFER_BYTES
            ) as container:
                streams = [one for one in container.streams.video if "attached_pic" not in str(one.disposition).lower()]
                if not streams:
                    raise MediaError(name, "is a video file without a video track", "Leave it out.")
                stream = streams[0]
                check_pixels(name, (stream.codec_context.width, stream.codec_context.height), max_pixels)
                stream.codec_context.thread_count = 1
                yield _Video(container, stream, name, max_pixels)
    except (av.FFmpegError, OSError, ValueError, EOFError, MemoryError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise MediaError(name, f"is a video that is damaged or of an unsupported type ({said})", COPY_AGAIN) from error


def _candidate(video: _Video, frame: Any, preprocess: Preprocess) -> _Candidate:
    image = video.image(frame, 2 * (preprocess.short or preprocess.size))
    grey = np.asarray(image.convert("L").resize(GREY_SIZE, Image.Resampling.BOX))
    return _Candidate(video.seconds_of(frame), grey, fit(image, preprocess), is_blank(FramedImage.whole(image)))


def _taken(noted: str) -> str | None:
    """Return a recording time in ISO 8601; times in UTC, as most cameras write, are converted to the local zone.

    >>> _taken("2023-08-01T14:30:00+0200"), _taken("1904-01-01T00:00:00.000000Z"), _taken("soon")
    ('2023-08-01T14:30:00+02:00', None, None)
    """
    try:
        time = datetime.fromisoformat(noted)
        if time.year < _OLDEST_YEAR or "T" not in noted:
            return None
        if time.tzinfo == UTC:
            time = time.astimezone()
    except (ValueError, OverflowError, OSError):
        return None
    return time.isoformat(timespec="seconds")


def _place(noted: str) -> tuple[float, float] | None:
    """Parse latitude and longitude from ISO 6709; None if invalid.

    >>> _place("+52.5000+013.2500+034.000/"), _place("north")
    ((52.5, 13.25), None)
    """
    found = re.match(r"([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)(?![\d.])", noted)
    if not found or abs(float(found[1])) > 90 or abs(float(found[2])) > 180:
        return None
    return float(found[1]), float(found[2])
