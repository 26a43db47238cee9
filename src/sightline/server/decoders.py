"""Decode images in separate processes, with limits on memory and time; cancelling a request kills its process."""

import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline import settings
from sightline.errors import MediaError, MissingDecoderError
from sightline.media import ImageBytes, Preprocess
from sightline.media.decoder import LOOK_SECONDS, DecoderProcess
from sightline.parallel import usable_cpus
from sightline.server.limits import Limits
from sightline.server.worker_pool import stop_if_cancelled


class DecoderPool:
    """A few processes that decode images. Thread-safe.

    An uploaded image is refused if, according to its header, decoding it needs more than `limits.decode_bytes`. An
    image of the collection may need up to `limits.large_decode_bytes`, but only one such large image is decoded at a
    time.
    """

    def __init__(self, limits: Limits, processes: int | None = None) -> None:
        self._limits = limits
        self._all = [DecoderProcess(stop_if_cancelled) for _ in range(processes or usable_cpus())]
        self._free: queue.SimpleQueue[DecoderProcess] = queue.SimpleQueue()
        for decoder in self._all:
            self._free.put(decoder)
        self._large = threading.Lock()

    def start(self) -> None:
        """Start the processes before the first image needs them."""
        for decoder in self._all:
            decoder.start()

    def pixels(self, source: ImageBytes, preprocess: Preprocess) -> npt.NDArray[np.float32]:
        """Return an uploaded image as model input: float32 [3, size, size]."""
        task = {"task": "pixels", "preprocess": settings.plain(preprocess), "max_pixels": self._limits.pixels}
        answer, data = self._run(source, task, self._limits.decode_bytes)
        if "needed" in answer:
            raise _too_large(source, answer["needed"], self._limits.decode_bytes)
        return np.frombuffer(data, np.float32).reshape(answer["shape"]).copy()

    def thumbnail(self, source: ImageBytes, side: int, quality: int) -> bytes:
        """Return an image of the collection as a JPEG whose longer side is at most `side` pixels."""
        return self._own(source, {"task": "thumbnail", "side": side, "quality": quality})

    def jpeg(self, source: ImageBytes, quality: int) -> bytes:
        """Return an image of the collection as a JPEG of the same size."""
        return self._own(source, {"task": "jpeg", "quality": quality})

    def camera(self, source: ImageBytes) -> dict[str, str]:
        """Return the camera data in an image of the collection."""
        found: dict[str, str] = self._run(source, {"task": "camera"}, self._limits.decode_bytes)[0]["camera"]
        return found

    def frame(self, path: Path, name: str, at: float, quality: int, side: int | None = None) -> bytes:
        """Return the frame of a video at `at` seconds, as a JPEG."""
        task = {"task": "frame", "path": str(path), "at": at, "side": side, "quality": quality}
        task["max_pixels"] = self._limits.own_pixels
        return self._run(ImageBytes(name, b""), task, self._limits.large_decode_bytes)[1]

    def close(self) -> None:
        """Kill the processes, even while they are busy."""
        for decoder in self._all:
            decoder.close()

    def __del__(self) -> None:
        self.close()

    def _own(self, source: ImageBytes, task: dict[str, Any]) -> bytes:
        task = {**task, "max_pixels": self._limits.own_pixels}
        answer, data = self._run(source, task, self._limits.decode_bytes)
        if "needed" in answer:
            with self._large:
                stop_if_cancelled()
                answer, data = self._run(source, task, self._limits.large_decode_bytes)
        if "needed" in answer:
            raise _too_large(source, answer["needed"], self._limits.large_decode_bytes)
        return data

    def _run(self, source: ImageBytes, task: dict[str, Any], max_bytes: int) -> tuple[dict[str, Any], bytes]:
        """Run a task on an image in one of the processes; raises a `MediaError` on failure."""
        header = {**task, "name": source.name, "max_bytes": max_bytes, "seconds": self._limits.decode_seconds}
        decoder = self._acquire()
        try:
            answer, data = decoder.request(header, source.data, self._limits.decode_seconds)
        finally:
            self._free.put(decoder)
        if "reason" in answer:
            kind = MissingDecoderError if "missing" in answer else MediaError
            raise kind(source.name, answer["reason"], answer["way_out"])
        return answer, data

    def _acquire(self) -> DecoderProcess:
        while True:
            stop_if_cancelled()
            try:
                return self._free.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue


def _too_large(source: ImageBytes, needed: int, most: int) -> MediaError:
    reason = f"has too many pixels: decoding takes {needed / 2**20:,.0f} MB, but only {most / 2**20:,.0f} are allowed"
    return MediaError(source.name, reason, "Save it smaller, or as a JPEG.")
