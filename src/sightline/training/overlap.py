"""Finding validation images that are also training images: results on these say little about other images."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sightline.datasets import Record
from sightline.errors import MediaError
from sightline.media import ImageBytes, ImageFile, ImageSlice, ImageSource


def overlap_notes(training: Iterable[Record], validation: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return a note for each validation set that shares images with the training data, also under other names."""
    sets = {name: {_place(record): record.image for record in records} for name, records in validation.items()}
    wanted = {place: image for own in sets.values() for place, image in own.items()}
    if not wanted:
        return []
    trained = {_place(record): record.image for record in training}
    seen = wanted.keys() & trained.keys()
    seen |= copies({place: image for place, image in wanted.items() if place not in seen}, trained.values())
    return [
        f"data.val: {shared:,} of {len(own):,} images of {name!r} are also training images, "
        "so its results say little about other images. Use images that are not in data.train."
        for name, own in sets.items()
        if (shared := len(own.keys() & seen))
    ]


def copies(wanted: Mapping[str, ImageSource], among: Iterable[ImageSource]) -> set[str]:
    """Return the names of the wanted images whose bytes equal those of another image.

    Only images of equal size are read. Images that cannot be read, or whose size is not known, are left out.
    """
    by_size = defaultdict(list)
    for name, image in wanted.items():
        by_size[_size(image)].append(name)
    by_size.pop(None, None)
    others = defaultdict(list)
    for image in among:
        if (size := _size(image)) in by_size:
            others[size].append(image)
    found = set()
    for size, images in others.items():
        digests = set(map(_digest, images)) - {None}
        found |= {name for name in by_size[size] if _digest(wanted[name]) in digests}
    return found


def _place(record: Record) -> str:
    """Return the location of an image: its file, or its archive and member."""
    return str(Path(record.image.name).absolute())


def _size(image: ImageSource) -> int | None:
    """Return the size of an image in bytes, without reading it; None if it is not known."""
    if isinstance(image, ImageSlice):
        return image.size
    if isinstance(image, ImageBytes):
        return len(image.data)
    try:
        return image.path.stat().st_size if isinstance(image, ImageFile) else None
    except (OSError, ValueError):  # ValueError: the path contains a null byte
        return None


def _digest(image: ImageSource) -> bytes | None:
    try:
        return hashlib.blake2b(image.read(), digest_size=16).digest()
    except MediaError:
        return None
