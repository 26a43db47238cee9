"""Finding validation images that are also training images: results on these say little about other images."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sightline.datasets import Record


def overlap_notes(training: Iterable[Record], validation: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return a note for each validation set that shares images with the training data."""
    names = {name: {_place(record) for record in records} for name, records in validation.items()}
    if not any(names.values()):
        return []
    wanted = set().union(*names.values())
    seen = {place for record in training if (place := _place(record)) in wanted}
    return [
        f"data.val: {shared:,} of {len(own):,} images of {name!r} are also training images, "
        "so its results say little about other images. Use images that are not in data.train."
        for name, own in names.items()
        if (shared := len(own & seen))
    ]


def _place(record: Record) -> str:
    """Return the location of an image: its file, or its archive and member."""
    return str(Path(record.image.name).absolute())
