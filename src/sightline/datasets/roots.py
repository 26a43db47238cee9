"""Finding the folder of the images that an annotation file names."""

from collections.abc import Sequence
from pathlib import Path

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
        """The path of an image."""
        if self._settled is None and self._looks:
            self._looks -= 1
            self._settled = next((folder for folder in self._candidates if (folder / name).is_file()), None)
        return (self._settled or self._candidates[0]) / name


def image_folders_in(folder: Path) -> list[Path]:
    """The folders to search for images if the user names none: the folder itself, then its subfolders."""
    return [folder / name for name in _USUAL]
