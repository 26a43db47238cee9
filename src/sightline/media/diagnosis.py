"""Turn image decoders' errors into messages that say what is wrong and how to fix it."""

from PIL import Image

from sightline.errors import MediaError
from sightline.media.file_types import FileType
from sightline.media.limits import too_many_pixels

COPY_AGAIN = "Copy or download it again from its source."
CONVERT = "Save it as JPEG or PNG, or leave it out."

# Parts of the messages that decoders raise when a file ends too early.
_RAN_OUT = (
    "truncated",
    "incomplete",
    "end of file",
    "requires a buffer",
    "but only got",
    "no more images",
    "insufficient input",
    "file size too small",
    "index out of range",
    "cannot read full",
)


def diagnose(name: str, kind: FileType, data: bytes, error: Exception, max_pixels: int) -> MediaError:
    """Return the error for an image whose decoder raised `error`."""
    said = str(error) or type(error).__name__
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return too_many_pixels(name, said, max_pixels)
    if isinstance(error, MemoryError):
        return MediaError(name, f"is {kind.says} that needs more memory than is available", "Save it smaller.")
    if _ran_out(data, error, said):
        return MediaError(name, f"is {kind.says} that is truncated after {len(data):,} bytes ({said})", COPY_AGAIN)
    return MediaError(
        name, f"is {kind.says} that is damaged or of an unsupported type ({said})", f"{COPY_AGAIN} {CONVERT}"
    )


def _ran_out(data: bytes, error: Exception, said: str) -> bool:
    if isinstance(error, EOFError) or any(words in said.lower() for words in _RAN_OUT):
        return True
    return _promised_length(data) > len(data)


def _promised_length(data: bytes) -> int:
    """Return the length that a WebP, HEIC or AVIF file declares; their decoders seldom report truncation."""
    if data.startswith(b"RIFF"):
        return 8 + int.from_bytes(data[4:8], "little")
    end = 0
    while data[4:8] == b"ftyp" and end + 8 <= len(data):
        box = int.from_bytes(data[end : end + 4], "big")
        if box < 8:  # a box of unspecified length, or not a box
            break
        end += box
    return end


_JPEG_END = b"\xff\xd9"
_START_OF_SCAN = 0xDA
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def is_cut_off(kind: str, data: bytes) -> bool:
    """Return whether an image of this Pillow format lacks its end marker."""
    if kind in ("JPEG", "MPO"):
        return _jpeg_lacks_its_end(data)
    return kind == "JPEG2000" and _JPEG_END not in data


def _jpeg_lacks_its_end(data: bytes) -> bool:
    """Look for the end marker only after the headers, because a thumbnail in the headers has its own."""
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
