"""Tell RAW photos, most of which are stored as TIFF files, from other TIFF files."""

import struct
from collections.abc import Iterator

_DNG_VERSION, _PHOTOMETRIC, _INNER = 50706, 262, 330
_SENSOR = (32803, 34892)  # photometric interpretations: a sensor's colour filter pattern, and linear RAW
_SHORT, _LONG, _INNER_OFFSET = 3, 4, 13
_MOST_DIRECTORIES, _MOST_TAGS = 32, 512


def is_raw(data: bytes) -> bool:
    """Return whether a TIFF file contains a camera's sensor data; the beginning of the file is enough to tell."""
    if data[8:10] == b"CR":
        return True
    try:
        return any(
            tag == _DNG_VERSION or (tag == _PHOTOMETRIC and values[:1] in [[one] for one in _SENSOR])
            for tag, values in _tags(data, "<" if data[:2] == b"II" else ">")
        )
    except struct.error:  # the file is truncated, or an offset points outside it
        return False


def _tags(data: bytes, order: str) -> Iterator[tuple[int, list[int]]]:
    """Yield the tags of all directories, each with its integer values; nested directories come after their parents."""
    waiting, seen = [struct.unpack_from(f"{order}I", data, 4)[0]], set[int]()
    while waiting and len(seen) < _MOST_DIRECTORIES:
        place = waiting.pop(0)
        if not place or place in seen or place + 2 > len(data):
            continue
        seen.add(place)
        (count,) = struct.unpack_from(f"{order}H", data, place)
        for at in range(place + 2, place + 2 + 12 * min(count, _MOST_TAGS), 12):
            tag, kind, length = struct.unpack_from(f"{order}HHI", data, at)
            values = _numbers(data, order, at + 8, kind, length)
            yield tag, values
            waiting += values if tag == _INNER else []
        waiting += struct.unpack_from(f"{order}I", data, place + 2 + 12 * count)


def _numbers(data: bytes, order: str, at: int, kind: int, count: int) -> list[int]:
    """Return the first integer values of a tag; empty if its values are of another type."""
    if kind not in (_SHORT, _LONG, _INNER_OFFSET):
        return []
    form, size = ("H", 2) if kind == _SHORT else ("I", 4)
    count = min(count, _MOST_DIRECTORIES)
    if count * size > 4:
        (at,) = struct.unpack_from(f"{order}I", data, at)
    return list(struct.unpack_from(f"{order}{count}{form}", data, at))
