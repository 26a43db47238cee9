"""Detect images without an end that decoders accept.

A broken download may have its full length with zeros at the end, which a JPEG decoder shows as gray or stripes.
"""

_JPEG_END = b"\xff\xd9"
_START_OF_SCAN = 0xDA
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def is_cut_off(kind: str, data: bytes) -> bool:
    """Whether an image of this Pillow format lacks the marker at its end."""
    if kind in ("JPEG", "MPO"):
        return _jpeg_lacks_its_end(data)
    return kind == "JPEG2000" and _JPEG_END not in data


def _jpeg_lacks_its_end(data: bytes) -> bool:
    """Look for the end after the headers, because a thumbnail in them has an end of its own."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _START_OF_SCAN:
            return data.rfind(_JPEG_END, at) < 0
        if marker == 0xFF:
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False
