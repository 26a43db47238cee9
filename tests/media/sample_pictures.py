"""Pictures drawn for the tests: small, colourful, and written to any format or by hand."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.media import ImageBytes

RED, GREEN, BLUE, WHITE = (220, 30, 40), (20, 160, 60), (30, 60, 200), (250, 250, 250)
QUARTERS = (RED, GREEN, BLUE, WHITE)


def quarters(width: int = 64, height: int = 48) -> Image.Image:
    """Red and green above, blue and white below: no turn and no mirroring leaves it as it is."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    image.paste(WHITE, (width // 2, height // 2, width, height))
    return image


def centres(image: Image.Image) -> list[tuple[int, ...]]:
    """The colour in the middle of each quarter: above left, above right, below left, below right."""
    pixels = np.asarray(image)
    rows, columns = pixels.shape[0] // 4, pixels.shape[1] // 4
    return [tuple(int(v) for v in pixels[r * rows, c * columns]) for r in (1, 3) for c in (1, 3)]


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth shapes with fine detail on top, as a camera sees."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), dtype=np.float32)
    for step in (2, 9, 40):
        noise = rng.integers(0, 256, (height // step + 2, width // step + 2, 3), dtype=np.uint8)
        layer = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        total += np.asarray(layer, dtype=np.float32) * step**0.5
    return Image.fromarray((total * (255 / total.max())).astype(np.uint8))


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def source(data: bytes, name: str = "picture") -> ImageBytes:
    return ImageBytes(name, data)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_by_hand(pixels: npt.NDArray[np.integer], depth: int, colour_type: int, *, extra: bytes = b"") -> bytes:
    """A PNG of any depth and colour type, which Pillow can read but not write; `extra` chunks come before the data."""
    height, width = pixels.shape[:2]
    rows = pixels.astype(">u2" if depth == 16 else "u1").reshape(height, -1)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = png_header(width, height, depth, colour_type)
    return header + extra + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def png_header(width: int, height: int, depth: int = 8, colour_type: int = 2) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + png_chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    )


def tiff_by_hand(width: int, height: int, bits: int, strip: bytes) -> bytes:
    """A gray TIFF with any number of bits a pixel, uncompressed, in one strip."""
    tags = (
        (256, width),
        (257, height),
        (258, bits),
        (259, 1),
        (262, 1),
        (273, 0),
        (277, 1),
        (278, height),
        (279, len(strip)),
    )
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, start if tag == 273 else value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0) + strip
