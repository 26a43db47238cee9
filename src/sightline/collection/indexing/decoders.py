"""Decode RAW photos in separate processes: their libraries are large, and no file may end an indexing run."""

import threading
from typing import Any

from sightline.errors import MediaError, MissingDecoderError
from sightline.media import ImageBytes
from sightline.media.decoder import DecoderProcess
from sightline.media.open import MAX_PIXELS

_PREVIEW_SECONDS = 60.0
_DECODE_BYTES = 2 << 30


class FileDecoders:
    """A process for each thread that needs one, with limits on memory and time; started on first use."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[DecoderProcess] = []

    def preview(self, source: ImageBytes) -> ImageBytes:
        """The preview of a RAW photo, as a JPEG."""
        _, data = self._request(source.name, {"task": "preview"}, source.data, _PREVIEW_SECONDS)
        return ImageBytes(source.name, data)

    def close(self) -> None:
        """Kill the processes, even while they are busy."""
        for process in list(self._all):
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
            self._all.append(found)
        return found
