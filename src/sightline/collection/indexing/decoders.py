"""Decode RAW photos and videos in separate processes: the libraries are large, and bad files must not crash a run."""

import threading
from pathlib import Path
from typing import Any

import numpy as np

from sightline import settings
from sightline.collection.indexing.video_files import DecodedVideo
from sightline.errors import MediaError, MissingDecoderError
from sightline.media import ImageBytes, Preprocess
from sightline.media.decoder import DecoderProcess
from sightline.media.open import MAX_PIXELS
from sightline.media.video import Moments, VideoFacts

_PREVIEW_SECONDS = 60.0
_ENOUGH_SECONDS, _CPU_SECONDS, _VIDEO_SECONDS = 60.0, 120.0, 600.0  # per video; the last may include waiting
_DECODE_BYTES = 2 << 30


class FileDecoders:
    """Decoder processes, one for each thread that needs it, limited in memory and time; started on first use."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[DecoderProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def preview(self, source: ImageBytes) -> ImageBytes:
        """Return the preview of a RAW photo, as a JPEG."""
        _, data = self._request(source.name, {"task": "preview"}, source.data, _PREVIEW_SECONDS)
        return ImageBytes(source.name, data)

    def moments(self, path: Path, name: str, preprocess: Preprocess) -> DecodedVideo:
        """Return the facts and moments of a video."""
        task = {
            "task": "moments",
            "path": str(path),
            "preprocess": settings.plain(preprocess),
            "enough_seconds": _ENOUGH_SECONDS,
            "cpu_seconds": _CPU_SECONDS,
        }
        answer, data = self._request(name, task, b"", _VIDEO_SECONDS)
        pixels = np.frombuffer(data, np.uint8).reshape(answer["shape"])
        return DecodedVideo(VideoFacts(**answer["facts"]), Moments(answer["moments"], answer["blank"], pixels))

    def close(self) -> None:
        """Kill the processes, even while they are busy."""
        with self._lock:
            self._is_closed = True
        for process in self._all:
            process.close()

    def _request(self, name: str, task: dict[str, Any], data: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        limits = {"max_pixels": MAX_PIXELS, "max_bytes": _DECODE_BYTES, "seconds": seconds}
        answer, result = self._process().request({**task, **limits, "name": name}, data, seconds)
        if "reason" in answer:
            kind = MissingDecoderError if "missing" in answer else MediaError
            raise kind(name, answer["reason"], answer["way_out"])
        return answer, result

    def _process(self) -> DecoderProcess:
        found: DecoderProcess | None = getattr(self._own, "process", None)
        if found is None:
            found = self._own.process = DecoderProcess()
            with self._lock:
                if self._is_closed:
                    raise RuntimeError("the decoders were closed")
                self._all.append(found)
        return found
