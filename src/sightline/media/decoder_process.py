"""A process that decodes images, one after another, and can be killed at any time.

    python -P -m sightline.media.decoder_process

Requests arrive on standard input and responses go to standard output. Each is a line of JSON, whose `bytes` is the
number of bytes that follow it. The process exits at the end of its input, or when an image exceeds its time limit.
"""

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from sightline import settings
from sightline.errors import MediaError, MissingDecoderError, ModelError
from sightline.media import ImageBytes, Preprocess, open_image, to_pixels
from sightline.media.camera import camera_facts
from sightline.media.file_types import RAW, detect_type
from sightline.media.jpeg import image_to_jpeg, to_jpeg
from sightline.media.ocr import read_lines
from sightline.media.open import ImageHeader, check_image, read_exif
from sightline.media.raw import preview
from sightline.media.video import frame_at, read_moments

_PLAIN_MODES = ("1", "L", "RGB", "CMYK", "YCbCr")
_HEADROOM = 2**30  # address space in addition to that for the images
_TEXT_HEADROOM = 3 * 2**30  # the same, when the OCR models are loaded
_TEXT_SIDE = 1080  # pixels; large photos may be shrunk to this on the short side before their text is read
_NICE = 10


def main() -> None:
    """Handle requests until the end of the input."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the responses
    for limit in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(limit, signal.SIG_DFL)  # kills the process, even inside a library
    os.nice(_NICE)
    while message := read_message(requests):
        header, data = message
        _limit_memory(header["max_bytes"] + (_TEXT_HEADROOM if header["task"] == "text" else _HEADROOM))
        signal.setitimer(signal.ITIMER_REAL, header["seconds"])
        signal.setitimer(signal.ITIMER_PROF, header.get("cpu_seconds", 0))
        answer, result = _answer(header, data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_message(answers, answer, result)


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Read the next message, a header and its data; None at the end of the stream."""
    line = stream.readline()
    if not line:
        return None
    header: dict[str, Any] = json.loads(line)
    data = stream.read(header["bytes"])
    return (header, data) if len(data) == header["bytes"] else None


def write_message(stream: IO[bytes], header: dict[str, Any], data: bytes) -> None:
    """Write a header and its data."""
    stream.write(json.dumps({**header, "bytes": len(data)}).encode() + b"\n")
    stream.write(data)
    stream.flush()


def estimated_bytes(header: ImageHeader, at_least: int | None) -> int:
    """Return an upper bound on the memory needed to decode an image, from its header.

    A JPEG can be decoded at as little as 1/8 of its size, as long as its short side keeps `at_least` pixels; decoding a
    progressive JPEG takes memory for all its coefficients. Other formats are decoded at full size and copied, more than
    once if they have transparency or more than eight bits per channel.
    """
    width, height = header.size
    pixels = width * height
    if header.format in ("JPEG", "MPO"):
        scale = 1
        while at_least and scale < 8 and min(width, height) >= 2 * scale * at_least:
            scale *= 2
        return 12 * pixels // scale**2 + (6 * pixels if header.progressive else 0)
    return pixels * (12 if header.mode in _PLAIN_MODES else 20)


def _answer(header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    source = ImageBytes(header["name"], data)
    try:
        if header["task"] == "camera":
            return {"camera": camera_facts(read_exif(source))}, b""
        if header["task"] == "moments":
            return _moments(header)
        if header["task"] == "frame":
            return {}, _frame(header)
        if detect_type(data) is RAW:
            source = ImageBytes(source.name, preview(source.name, data, header["max_pixels"]))
        if header["task"] == "preview":
            return {}, source.data
        found = check_image(source, max_pixels=header["max_pixels"])
        needed = estimated_bytes(found, _at_least(header))
        if needed > header["max_bytes"]:
            return {"needed": needed}, b""
        return _done(header, source)
    except MissingDecoderError as error:
        return {"reason": error.reason, "way_out": error.way_out, "missing": True}, b""
    except MediaError as error:
        return {"reason": error.reason, "way_out": error.way_out}, b""
    except (MemoryError, ModelError) as error:
        return {"reason": f"cannot be decoded ({error or 'out of memory'})", "way_out": "Save it smaller."}, b""


def _moments(header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Read the video at the requested path: its properties, its moments, and their pixels."""
    facts, moments = read_moments(
        Path(header["path"]),
        header["name"],
        _preprocess(header),
        max_pixels=header["max_pixels"],
        cpu_seconds=header["enough_seconds"],
    )
    answer = {"facts": asdict(facts), "moments": moments.seconds, "blank": moments.blank, "shape": moments.pixels.shape}
    return answer, moments.pixels.tobytes()


def _frame(header: dict[str, Any]) -> bytes:
    """Return a frame of the video at the requested path, as a JPEG."""
    image = frame_at(Path(header["path"]), header["name"], header["at"], max_pixels=header["max_pixels"])
    return image_to_jpeg(image, header["name"], header["quality"], header["side"])


def _at_least(header: dict[str, Any]) -> int | None:
    if header["task"] == "thumbnail":
        return int(header["side"])
    if header["task"] == "pixels":
        wanted = _preprocess(header)
        return 2 * (wanted.short or wanted.size)
    return _TEXT_SIDE if header["task"] == "text" else None


def _done(header: dict[str, Any], source: ImageBytes) -> tuple[dict[str, Any], bytes]:
    """Convert an image as requested: to model input, to a JPEG of the same or a smaller size, or to the text in it."""
    if header["task"] == "pixels":
        pixels = to_pixels(source, _preprocess(header), header["max_pixels"])
        return {"shape": pixels.shape}, np.ascontiguousarray(pixels).tobytes()
    if header["task"] == "text":
        image = open_image(source, at_least=_at_least(header), max_pixels=header["max_pixels"])
        return {"lines": [[line.text, line.corners] for line in read_lines(image)]}, b""
    return {}, to_jpeg(source, header["quality"], _at_least(header), header["max_pixels"])


def _preprocess(header: dict[str, Any]) -> Preprocess:
    return settings.parse(Preprocess, header["preprocess"], "preprocess", ModelError)


def _limit_memory(most: int) -> None:
    """Limit the address space of the process."""
    if sys.platform != "linux":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
