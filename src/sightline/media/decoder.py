"""A process that decodes images within limits on memory and time, and is killed if it exceeds them."""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from sightline.errors import MediaError
from sightline.media.decoder_process import write_message

LOOK_SECONDS = 0.05
"""How often a waiting thread checks whether its request was cancelled."""

_GRACE_SECONDS = 10.0  # time for a process to start, and to exit before it is killed
_READ_BYTES = 2**20
_LARGEST_ANSWER = 512 * 2**20
_COMMAND = (sys.executable, "-P", "-m", "sightline.media.decoder_process")  # -P: never import from the current folder
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "131072",  # makes glibc return an image's memory to the system as soon as it is freed
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


class DecoderProcess:
    """A decoder process, restarted if it has exited. Only one thread may use it at a time."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        """Prepare a process; `check` is called often while waiting for it, and ends the request by raising an error."""
        self._check = check
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process if it is not already running."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the decoders were closed")
            if self._process is None:
                self._process = subprocess.Popen(
                    _COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # discard the warnings that image libraries print
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
            return _read_answer(process.stdout.fileno(), seconds + _GRACE_SECONDS, self._check)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self._end()
            reason = f"takes longer than {seconds:g} s, or more memory than allowed, to decode"
            raise MediaError(header["name"], reason, "Save it again as a plain JPEG.") from error
        except BaseException:  # the request was cancelled
            self._end()
            raise

    def close(self) -> None:
        """Kill the process, even while it is busy."""
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


def _read_answer(file: int, seconds: float, check: Callable[[], None]) -> tuple[dict[str, Any], bytes]:
    """Read one response; raises an error if the request is cancelled or the time is up."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(file, select.POLLIN)
    received = bytearray()
    header: dict[str, Any] | None = None
    while header is None or len(received) < header["bytes"]:
        check()
        if time.monotonic() > deadline:
            raise TimeoutError
        if not poll.poll(1000 * LOOK_SECONDS):
            continue
        part = os.read(file, _READ_BYTES)
        if not part:
            raise EOFError
        received += part
        if header is None and b"\n" in received:
            line, _, rest = bytes(received).partition(b"\n")
            header, received = json.loads(line), bytearray(rest)
            if not 0 <= header["bytes"] <= _LARGEST_ANSWER:
                raise ValueError(f"the decoder announced an answer of {header['bytes']} bytes")
    return header, bytes(received)


def _close(stream: Any) -> None:
    try:
        stream.close()
    except OSError:  # data that was not yet written is lost along with the process
        return
