"""Detect the type of a file from its first bytes, not its name.

Pillow would try all its decoders. Choosing one here keeps untrusted data away from the others (one of them runs
PostScript), and if a file is not an image, the error can say what it really is.
"""

from dataclasses import dataclass

from sightline.media.tiff import is_raw

_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_TEXT_PROBE = 512


@dataclass(frozen=True, slots=True)
class FileType:
    """A file type.

    says: its name in messages. decoder: its name in Pillow; None if it cannot be opened. plugin: the Pillow module
    that decodes it. content_type: its MIME type, if browsers can display it.
    """

    says: str
    decoder: str | None = None
    plugin: str | None = None
    content_type: str | None = None


IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"}
    | {".heic", ".heif", ".hif", ".avif", ".jp2", ".j2k", ".jpx", ".ppm", ".pgm", ".pbm", ".pnm"}
)
"""Suffixes of files to index; `detect_type` determines their actual type."""
RAW_SUFFIXES = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".kdc", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf"}
    | {".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"}
)
VIDEO_SUFFIXES = frozenset(
    {".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv", ".webm", ".wmv"}
)

HEIC = FileType("a HEIC picture", "HEIF", "pillow_heif")
RAW = FileType("a RAW photo", "RAW", "rawpy")
AVIF = FileType("an AVIF picture", "AVIF", "PIL.AvifImagePlugin", "image/avif")
_JPEG = FileType("a JPEG picture", "JPEG", "PIL.JpegImagePlugin", "image/jpeg")
_PNG = FileType("a PNG picture", "PNG", "PIL.PngImagePlugin", "image/png")
_GIF = FileType("a GIF picture", "GIF", "PIL.GifImagePlugin", "image/gif")
_BMP = FileType("a BMP picture", "BMP", "PIL.BmpImagePlugin", "image/bmp")
_PNM = FileType("a PNM picture", "PPM", "PIL.PpmImagePlugin")
_JPEG_2000 = FileType("a JPEG 2000 picture", "JPEG2000", "PIL.Jpeg2KImagePlugin")
_TIFF = FileType("a TIFF picture", "TIFF", "PIL.TiffImagePlugin")
_WEBP = FileType("a WebP picture", "WEBP", "PIL.WebPImagePlugin", "image/webp")
ARRAY = FileType("an array of numbers, such as the regions of a picture")

_BEGINNINGS: tuple[tuple[bytes, FileType], ...] = (
    (b"\xff\xd8\xff", _JPEG),
    (b"\x89PNG\r\n\x1a\n", _PNG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"II*\0", _TIFF),
    (b"MM\0*", _TIFF),
    (b"II+\0", _TIFF),
    (b"MM\0+", _TIFF),
    (b"BM", _BMP),
    (b"\0\0\0\x0cjP  \r\n\x87\n", _JPEG_2000),
    (b"\xff\x4f\xff\x51", _JPEG_2000),
    *((b"P%d%c" % (digit, space), _PNM) for digit in range(1, 7) for space in b" \t\n\r"),
    (b"\0\0\0\x0cJXL ", FileType("a JPEG XL picture")),
    (b"\xff\x0a", FileType("a JPEG XL picture")),
    (b"8BPS", FileType("a Photoshop document")),
    (b"gimp xcf", FileType("a GIMP document")),
    *((start, RAW) for start in (b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0", b"FOVb", b"\0MRM")),
    (b"II\x1a\0\0\0HEAPCCDR", RAW),
    (b"\0\0\x01\0", FileType("a Windows icon")),
    (b"%PDF", FileType("a PDF document")),
    (b"%!PS", FileType("a PostScript document")),
    (b"PK\x03\x04", FileType("a ZIP archive")),
    (b"\x1f\x8b", FileType("a gzip archive")),
    (b"Rar!", FileType("a RAR archive")),
    (b"7z\xbc\xaf\x27\x1c", FileType("a 7-Zip archive")),
    (b"\x1a\x45\xdf\xa3", FileType("a Matroska or WebM video")),
    (b"\0\x05\x16\x07", FileType("macOS file metadata (AppleDouble)")),
    (b"\x7fELF", FileType("a program")),
    (b"MZ", FileType("a Windows program")),
    (b"version https://git-lfs", FileType("a Git LFS pointer, not the picture itself")),
    (b"SQLite format 3\0", FileType("an SQLite database")),
    (b"\x93NUMPY", ARRAY),
)
_MARKUP: tuple[tuple[bytes, str], ...] = (
    (b"<svg", "an SVG drawing"),
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "an XML document"),
)


def detect_type(data: bytes) -> FileType:
    """Return the type of the file that begins with these bytes; a JPEG named .png is a JPEG."""
    if data[:4] == b"RIFF" and len(data) >= 12:
        return _WEBP if data[8:12] == b"WEBP" else FileType("a RIFF sound or video file")
    if data[4:8] == b"ftyp":
        return _in_iso_container(data)
    for beginning, kind in _BEGINNINGS:
        if data.startswith(beginning):
            return RAW if kind is _TIFF and is_raw(data) else kind
    return _text_or_nothing(data[:_TEXT_PROBE])


def _in_iso_container(data: bytes) -> FileType:
    """Distinguish HEIC, AVIF and MP4, which share one container format, by the brands in its first box."""
    box = data[: min(int.from_bytes(data[:4], "big"), 1024)]
    brands = {data[8:12]} | {box[start : start + 4] for start in range(16, len(box), 4)}
    if brands & _AVIF_BRANDS:
        return AVIF
    if brands & _HEIF_BRANDS:
        return HEIC
    if data[8:12] == b"crx ":
        return RAW
    return FileType("an MP4 or QuickTime video")


def _text_or_nothing(head: bytes) -> FileType:
    if not head.strip(b"\0"):
        return FileType("nothing but zero bytes, as an interrupted download or a failing disk leaves")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for markup, says in _MARKUP:
        if start.startswith(markup):
            return FileType("an SVG drawing" if b"<svg" in start else says)
    if start.startswith((b"{", b"[")):
        return FileType("JSON")
    # The data may be cut inside a character, so up to three bytes at its end may not decode.
    text = head.decode("utf-8", "ignore")
    is_text = len(head) - len(text.encode()) <= 3 and all(char.isprintable() or char.isspace() for char in text)
    return FileType("plain text" if is_text else "no known kind of file")
