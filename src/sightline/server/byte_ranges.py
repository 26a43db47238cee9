"""Byte ranges in requests, which browsers send to play a video from the middle (RFC 9110, section 14)."""

import re
from typing import NamedTuple

_RANGE = re.compile(r"bytes=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII)


class ByteRange(NamedTuple):
    """A range of `length` bytes that starts at byte `first`."""

    first: int
    length: int


class UnsatisfiableRangeError(ValueError):
    """A requested range that begins after the end of the file."""


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the range that a header asks for; None for the whole file, or if there are several ranges or no valid one.

    >>> parse_range("bytes=2-5", 10), parse_range("bytes=-3", 10), parse_range("bytes=4-", 10)
    (ByteRange(first=2, length=4), ByteRange(first=7, length=3), ByteRange(first=4, length=6))
    >>> parse_range("lines=1-2", 10) is None
    True
    """
    found = _RANGE.fullmatch(header or "")
    if not found or found[1] == found[2] == "":
        return None
    if found[1] == "":
        first, last = max(0, size - int(found[2])), size - 1
        if not int(found[2]):
            raise UnsatisfiableRangeError
    else:
        first, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first >= size:
        raise UnsatisfiableRangeError
    return ByteRange(first, last - first + 1)
