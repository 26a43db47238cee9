"""Reading annotation files (numbered lines, one JSON document, first and last bytes), and finding their images."""

import gzip
import json
import zlib
from collections.abc import Generator, Sequence
from pathlib import Path

from sightline.datasets.fields import decoded, mapping
from sightline.datasets.record import BrokenRecordError
from sightline.errors import DataError

_BOM = b"\xef\xbb\xbf"


def numbered_lines(path: Path) -> Generator[tuple[int, bytes], None, None]:
    """Yield lines one at a time, numbered from 1, without line endings; a name ending in `.gz` is decompressed.

    Only a line feed ends a line: captions may contain any other Unicode line break, and parallel files must stay
    aligned. Lines are bytes, so that one invalid line does not affect the others.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.removeprefix(_BOM if number == 1 else b"").rstrip(b"\r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def json_document(path: Path) -> dict[str, object]:
    """Parse a file that is one JSON object."""
    try:
        return mapping(json.loads(decoded(path.read_bytes())), "the document")
    except OSError as error:
        raise _unreadable(path, error) from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error}", "Download or create the file again.") from error
    except (BrokenRecordError, RecursionError) as error:
        raise DataError(f"{path}: {error}", "Download or create the file again.") from error


def both_ends(path: Path, size: int) -> tuple[bytes, bytes]:
    """Read the first and the last `size` bytes of a file, to detect its format."""
    try:
        with path.open("rb") as file:
            head = file.read(size)
            file.seek(max(0, path.stat().st_size - size))
            return head, file.read(size)
    except OSError as error:
        raise _unreadable(path, error) from error


def entries_of(folder: Path) -> list[Path]:
    """List a folder, sorted."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise _unreadable(folder, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return DataError(
        f"{path}: cannot be read: {reason}", "Check that it is complete and that you have permission to read it."
    )


_LOOKS = 20  # images tried before giving up: the first may be missing, and network disks are slow

_USUAL = ("", "images", "Images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")


class ImageFolder:
    """The first of `candidates` in which an image is found.

    Once an image is found, the folder is fixed, so only a few paths are checked. If none is found, the first candidate
    is used, and opening an image reports the path that was tried.
    """

    def __init__(self, candidates: Sequence[Path]) -> None:
        self._candidates = candidates
        self._settled: Path | None = candidates[0] if len(candidates) == 1 else None
        self._looks = _LOOKS

    def path(self, name: str) -> Path:
        """Return the path of an image."""
        if self._settled is None and self._looks:
            self._looks -= 1
            self._settled = next((folder for folder in self._candidates if (folder / name).is_file()), None)
        return (self._settled or self._candidates[0]) / name


def image_folders_in(folder: Path) -> list[Path]:
    """Return the default folders to search for images: the folder itself, then subfolders with common names."""
    return [folder / name for name in _USUAL]
