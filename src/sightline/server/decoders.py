"""Decode images in separate processes, with limits on memory and time; cancelled requests kill them."""

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline import settings
from sightline.errors import MediaError
from sightline.media import ImageBytes, Preprocess
from sightline.parallel import usable_cpus
from sightline.server.decoder_process import write_message
from sightline.server.limits import Limits
from sightline.server.worker_pool import stop_if_cancelled

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 10.0  # time for a process to start, and to exit before it is killed
_READ_BYTES = 2**20
_LARGEST_ANSWER = 512 * 2**20
_COMMAND = (sys.executable, "-P", "-m", "sightline.server.decoder_process")  # -P: never import from the current folder
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "131072",  # glibc returns the memory of an image as soon as it is freed
    "OPENBLAS_NUM_THREADS": "1",
}


class DecoderPool:
    """A few processes that decode images. Thread-safe.

    An uploaded image that needs more than `limits.decode_bytes` by its header is refused; an image of the collection
    may take up to `limits.large_decode_bytes`, one such image at a time.
    """

    def __init__(self, limits: Limits, processes: int | None = None) -> None:
        self._limits = limits
        self._all = [_Decoder() for _ in range(processes or usable_cpus())]
        self._free: queue.SimpleQueue[_Decoder] = queue.SimpleQueue()
        for decoder in self._all:
            self._free.put(decoder)
        self._large = threading.Lock()

    def start(self) -> None:
        """Start the processes before the first image needs them."""
        for decoder in self._all:
            decoder.start()

    def pixels(self, source: ImageBytes, preprocess: Preprocess) -> npt.NDArray[np.float32]:
        """An uploaded image as model input: float32 [3, size, size]."""
        task = {"task": "pixels", "preprocess": settings.plain(preprocess), "max_pixels": self._limits.pixels}
        answer, data = self._run(source, task, self._limits.decode_bytes)
        if "needed" in answer:
            raise _too_large(source, answer["needed"], self._limits.decode_bytes)
        return np.frombuffer(data, np.float32).reshape(answer["shape"]).copy()

    def thumbnail(self, source: ImageBytes, side: int, quality: int) -> bytes:
        """An image of the collection as a JPEG whose longer side is at most `side` pixels."""
        return self._own(source, {"task": "thumbnail", "side": side, "quality": quality})

    def jpeg(self, source: ImageBytes, quality: int) -> bytes:
        """An image of the collection as a JPEG of the same size."""
        return self._own(source, {"task": "jpeg", "quality": quality})

    def camera(self, source: ImageBytes) -> dict[str, str]:
        """The camera data of an image of the collection."""
        found: dict[str, str] = self._run(source, {"task": "camera"}, self._limits.decode_bytes)[0]["camera"]
        return found

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
        """Run a task on an image in a process; raises a `MediaError` on failure."""
        header = {**task, "name": source.name, "max_bytes": max_bytes, "seconds": self._limits.decode_seconds}
        decoder = self._acquire()
        try:
            answer, data = decoder.request(header, source.data, self._limits.decode_seconds)
        finally:
            self._free.put(decoder)
        if "reason" in answer:
            raise MediaError(source.name, answer["reason"], answer["way_out"])
        return answer, data

    def _acquire(self) -> "_Decoder":
        while True:
            stop_if_cancelled()
            try:
                return self._free.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue


class _Decoder:
    """One process, restarted after it has exited. Used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the decoders were closed")
            if self._process is None:
                self._process = subprocess.Popen(
                    _COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # image libraries print warnings about files
                    env={**os.environ, **_ENVIRONMENT},
                    start_new_session=True,  # only the server handles Ctrl-C
                )
            return self._process

    def request(self, header: dict[str, Any], data: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for the response. A process that does not respond in time is killed."""
        process = self.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            write_message(process.stdin, header, data)
            return _read_answer(process.stdout.fileno(), seconds + _GRACE_SECONDS)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self._end()
            reason = f"takes longer than {seconds:g} s to decode, or more memory than it may"
            raise MediaError(header["name"], reason, "Save it anew, as a plain JPEG.") from error
        except BaseException:  # the request was cancelled
            self._end()
            raise

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._end()

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    _close(stream)


def _read_answer(file: int, seconds: float) -> tuple[dict[str, Any], bytes]:
    """Read one response; raises an error if the request is cancelled or the time is up."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(file, select.POLLIN)
    received = bytearray()
    header: dict[str, Any] | None = None
    while header is None or len(received) < header["bytes"]:
        stop_if_cancelled()
        if time.monotonic() > deadline:
            raise TimeoutError
        if not poll.poll(1000 * _LOOK_SECONDS):
            continue
        part = os.read(file, _READ_BYTES)
        if not part:
            raise EOFError
        received += part
        if header is None and b"\n" in received:
            line, _, rest = bytes(received).partition(b"\n")
            header, received = json.loads(line), bytearray(rest)
            if not 0 <= header["bytes"] <= _LARGEST_ANSWER:
                raise ValueError(f"an answer of {header['bytes']} bytes")
    return header, bytes(received)


def _close(stream: Any) -> None:
    try:
        stream.close()
    except OSError:  # unwritten data is lost with the process
        return


def _too_large(source: ImageBytes, needed: int, most: int) -> MediaError:
    reason = f"has too many pixels: decoding takes {needed / 2**20:,.0f} MB, where {most / 2**20:,.0f} are allowed"
    return MediaError(source.name, reason, "Save it smaller, or as a JPEG.")
