"""Where the images are that an annotation file names: data sets come unpacked in many ways."""

from collections.abc import Sequence
from pathlib import Path

_LOOKS = 20  # images looked for before giving up: the first may be missing, and a network disk is slow

_USUAL = ("", "images", "Images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")


class ImageFolder:
    """The first of `candidates` in which an image is found.

    Once found it is settled, so a data set costs a few looks at the disk and not one for each image. If nothing is
    ever found the first candidate stands, and opening an image names the path that was tried.
    """

    def __init__(self, candidates: Sequence[Path]) -> None:
        self._candidates = candidates
        self._settled: Path | None = candidates[0] if len(candidates) == 1 else None
        self._looks = _LOOKS

    def path(self, name: str) -> Path:
        """Name the file of an image."""
        if self._settled is None and self._looks:
            self._looks -= 1
            self._settled = next((folder for folder in self._candidates if (folder / name).is_file()), None)
        return (self._settled or self._candidates[0]) / name


def image_folders_in(folder: Path) -> list[Path]:
    """List the folders in which images are looked for when the user names none: the folder itself, then below."""
    return [folder / name for name in _USUAL]
