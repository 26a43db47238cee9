"""Unique keys across the files of a data set."""

from dataclasses import replace
from pathlib import Path

from sightline.datasets.record import BrokenRecordError, Record


class Keys:
    """The keys used during one reading.

    Two different images from two files may have the same key, because many tools count every shard from zero: the
    later one is renamed after its file, `shard-001/000017`. A key that occurs twice in one file, or twice for the same
    image, is refused: that image would be in the gallery twice, or in both train and test.
    """

    def __init__(self) -> None:
        self._given: dict[str, tuple[Path, str]] = {}

    def admit(self, record: Record, file: Path) -> Record:
        """Return the record with a unique key, or raise `BrokenRecordError`."""
        here = (file, record.image.name)
        there = self._given.setdefault(record.key, here)
        if there is here:
            return record
        renamed = f"{file.name.partition('.')[0]}/{record.key}"
        same_file, same_picture = there[0] == file, there[1] == here[1]
        if same_file or same_picture or renamed in self._given:
            raise BrokenRecordError(
                f"the key {record.key!r} ({here[1]}) is already that of {there[1]} in {there[0]}; "
                "list each image once, with all its captions, or give it its own key"
            )
        self._given[renamed] = here
        return replace(record, key=renamed)
