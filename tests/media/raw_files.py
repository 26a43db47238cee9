"""RAW files as cameras write them, with tiny pictures: DNG, CR2 and NEF, built tag by tag."""

import io
import struct
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

_BYTE, _ASCII, _SHORT, _LONG, _RATIONAL, _SIGNED = 1, 2, 3, 4, 5, 10
_FORMS = {_BYTE: "B", _SHORT: "H", _LONG: "I", _RATIONAL: "II", _SIGNED: "ii"}
_PAIRS = (_RATIONAL, _SIGNED)
_IDENTITY = [number for one in (1, 0, 0, 0, 1, 0, 0, 0, 1) for number in (one, 1)]
SIZE = (96, 64)


@dataclass
class Directory:
    """A directory of a TIFF file: its tags, data that a pair of tags points to, and directories inside."""

    tags: dict[int, tuple[int, list[int] | bytes]]
    blobs: dict[tuple[int, int], bytes] = field(default_factory=dict)
    inner: dict[int, list["Directory"]] = field(default_factory=dict)

    def write(self, at: int, following: int = 0) -> bytes:
        """The bytes of the directory, which begins at this place of the file, with what belongs to it."""
        tags = dict(self.tags)
        names = {*tags, *(tag for pair in self.blobs for tag in pair), *self.inner}
        end = at + 2 + 12 * len(names) + 4
        after = b""
        for (offset, length), blob in self.blobs.items():
            tags[offset], tags[length] = (_LONG, [end + len(after)]), (_LONG, [len(blob)])
            after += blob + bytes(len(blob) % 2)
        for tag, directories in self.inner.items():
            places = []
            for directory in directories:
                places.append(end + len(after))
                after += directory.write(places[-1])
            tags[tag] = (_LONG, places)
        lines = []
        for tag, (kind, values) in sorted(tags.items()):
            data = values if isinstance(values, bytes) else struct.pack(f"<{_form(kind, len(values))}", *values)
            count = len(values) // (2 if kind in _PAIRS else 1)
            if len(data) > 4:
                after += bytes(len(after) % 2)
                lines.append(struct.pack("<HHII", tag, kind, count, end + len(after)))
                after += data
            else:
                lines.append(struct.pack("<HHI", tag, kind, count) + data.ljust(4, b"\0"))
        after += bytes(len(after) % 2)
        following = end + len(after) if following else 0
        return struct.pack("<H", len(lines)) + b"".join(lines) + struct.pack("<I", following) + after


def _form(kind: int, count: int) -> str:
    return _FORMS[kind] * (count // 2 if kind in _PAIRS else count)


def _text(value: str) -> tuple[int, bytes]:
    return _ASCII, value.encode() + b"\0"


def jpeg(seed: int, size: tuple[int, int] = SIZE) -> bytes:
    """A preview of large coloured squares."""
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST).save(file, "JPEG", quality=95)
    return file.getvalue()


def _camera(make: str, model: str, taken: str, orientation: int) -> dict[int, tuple[int, list[int] | bytes]]:
    return {271: _text(make), 272: _text(model), 274: (_SHORT, [orientation]), 306: _text(taken)}


def _exif(taken: str) -> Directory:
    return Directory({33434: (_RATIONAL, [1, 250]), 36867: _text(taken), 36881: _text("+02:00")})


def _gps() -> Directory:
    return Directory(
        {
            1: _text("N"),
            2: (_RATIONAL, [52, 1, 30, 1, 0, 1]),
            3: _text("E"),
            4: (_RATIONAL, [13, 1, 15, 1, 0, 1]),
        }
    )


def _sensor(size: tuple[int, int], levels: bytes, bits: int = 16) -> Directory:
    """What the sensor saw, in 16 bits for each pixel, red, green and blue in turn."""
    width, height = size
    tags = {
        254: (_LONG, [0]),
        256: (_LONG, [width]),
        257: (_LONG, [height]),
        258: (_SHORT, [bits]),
        259: (_SHORT, [1]),
        262: (_SHORT, [32803]),
        277: (_SHORT, [1]),
        278: (_LONG, [height]),
        33421: (_SHORT, [2, 2]),
        33422: (_BYTE, [0, 1, 1, 2]),
    }
    return Directory(tags, {(273, 279): levels})


def _preview_tags(size: tuple[int, int]) -> dict[int, tuple[int, list[int] | bytes]]:
    return {
        254: (_LONG, [1]),
        256: (_LONG, [size[0]]),
        257: (_LONG, [size[1]]),
        258: (_SHORT, [8, 8, 8]),
        259: (_SHORT, [7]),
        262: (_SHORT, [6]),
        277: (_SHORT, [3]),
        278: (_LONG, [size[1]]),
    }


def _levels(size: tuple[int, int]) -> bytes:
    """A sensor whose left half is bright, and whose right half is dark."""
    columns = np.where(np.arange(size[0]) < size[0] // 2, 60_000, 2_000).astype("<u2")
    return np.tile(columns, (size[1], 1)).tobytes()


def dng(
    seed: int | None = 1,
    *,
    orientation: int = 1,
    taken: str = "2023:08:01 10:00:00",
    size: tuple[int, int] = SIZE,
    sensor: tuple[int, int] = SIZE,
) -> bytes:
    """A DNG with a preview made of a seed; with None, without a preview. size: of the preview."""
    raw = _sensor(sensor, _levels(sensor))
    first = Directory(
        {
            **_camera("Made Up", "Made Up One", taken, orientation),
            50706: (_BYTE, [1, 4, 0, 0]),
            50707: (_BYTE, [1, 1, 0, 0]),
            50708: _text("Made Up One"),
            50778: (_SHORT, [21]),
            50721: (_SIGNED, _IDENTITY),
            50728: (_RATIONAL, [1, 1, 1, 1, 1, 1]),
        },
        inner={34665: [_exif(taken)], 34853: [_gps()]},
    )
    if seed is None:
        first.tags |= raw.tags
        first.blobs |= raw.blobs
    else:
        first.tags |= _preview_tags(size)
        first.blobs[273, 279] = jpeg(seed, size)
        first.inner[330] = [raw]
    return b"II*\0\x08\0\0\0" + first.write(8)


def nef(seed: int = 2, *, taken: str = "2022:05:06 07:08:09", size: tuple[int, int] = SIZE) -> bytes:
    """A NEF: its first picture is a thumbnail, and its preview and sensor are inside."""
    width, height = 8, 6
    tags = {
        **_camera("NIKON CORPORATION", "NIKON D70", taken, 1),
        254: (_LONG, [1]),
        256: (_LONG, [width]),
        257: (_LONG, [height]),
        258: (_SHORT, [8, 8, 8]),
        259: (_SHORT, [1]),
        262: (_SHORT, [2]),
        277: (_SHORT, [3]),
        278: (_LONG, [height]),
    }
    preview = Directory(
        {254: (_LONG, [1]), 259: (_SHORT, [6]), 256: (_LONG, [size[0]]), 257: (_LONG, [size[1]])},
        {(513, 514): jpeg(seed, size)},
    )
    first = Directory(
        tags,
        {(273, 279): bytes(3 * width * height)},
        {330: [preview, _sensor(SIZE, _levels(SIZE))], 34665: [_exif(taken)]},
    )
    return b"II*\0\x08\0\0\0" + first.write(8)


def cr2(seed: int = 3, *, taken: str = "2021:01:02 03:04:05", size: tuple[int, int] = SIZE) -> bytes:
    """A CR2: a preview, and what the sensor saw as a lossless JPEG of one colour."""
    first = Directory(
        {
            **_camera("Canon", "Canon EOS 5D Mark II", taken, 6),
            256: (_SHORT, [size[0]]),
            257: (_SHORT, [size[1]]),
            258: (_SHORT, [8, 8, 8]),
            259: (_SHORT, [6]),
        },
        {(273, 279): jpeg(seed, size)},
        {34665: [_exif(taken)]},
    )
    raw = Directory({259: (_SHORT, [6]), 50752: (_SHORT, [0, 0, SIZE[0]])}, {(273, 279): _lossless(SIZE)})
    start = b"II*\0\x10\0\0\0CR\x02\0\0\0\0\0"
    data = start + first.write(16, following=1)
    return data + raw.write(len(data))


def _lossless(size: tuple[int, int]) -> bytes:
    """A lossless JPEG [height, width] of 12 bits in which every difference is zero: one bit for each pixel."""
    width, height = size
    frame = struct.pack(">BHHB", 12, height, width // 2, 2) + b"\1\x11\0" + b"\2\x11\0"
    table = b"\0" + bytes([1]) + bytes(15) + b"\0"
    scan = b"\2" + b"\1\0" + b"\2\0" + b"\1\0\0"
    parts = ((0xC3, frame), (0xC4, table), (0xDA, scan))
    segments = b"".join(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in parts)
    return b"\xff\xd8" + segments + bytes(width * height // 8) + b"\xff\xd9"
