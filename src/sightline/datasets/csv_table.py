"""Finding the image, caption and split columns of CSV and TSV files from their header."""

import csv
import re
from dataclasses import dataclass

from sightline.datasets.record import BrokenRecordError

_IMAGE = re.compile(r"(?:image|img|file|path)(?:_?(?:name|path|file))?", re.IGNORECASE)
_CAPTION = re.compile(r"(?:caption|title|text|comment|sentence|description)s?", re.IGNORECASE)
_SPLIT = "split"


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The layout of a table: its delimiter, and the columns of image, caption and split (if any), counted from 0.

    >>> CsvHeader.read("filepath,title,split")
    CsvHeader(delimiter=',', columns=3, image=0, caption=1, split=2)
    """

    delimiter: str
    columns: int
    image: int
    caption: int
    split: int | None

    @classmethod
    def read(cls, line: str) -> "CsvHeader | None":
        """Find the columns in a file's first line, separated by commas or tabs; None if it is not such a header.

        The image is in a column such as `image`, `file_name` or open_clip's `filepath`; the caption in one such as
        `caption`, `text` or `title`, or otherwise in the last column; the split in a column `split`.
        """
        for delimiter in "\t,":
            names = [name.strip() for name in line.replace('"', "").split(delimiter)]
            image = next((place for place, name in enumerate(names) if _IMAGE.fullmatch(name)), None)
            split = next((place for place, name in enumerate(names) if name.lower() == _SPLIT), None)
            last = max((place for place in range(len(names)) if place != split), default=0)
            caption = next((place for place, name in enumerate(names) if _CAPTION.fullmatch(name)), last)
            if image is not None and image != caption:
                return cls(delimiter, len(names), image, caption, split)
        return None

    def row(self, line: str) -> tuple[str, str, str]:
        """Return the image, the caption and the split ("" if none) of a line with as many columns as the header."""
        try:
            row = next(csv.reader([line], delimiter=self.delimiter))
        except csv.Error as error:
            raise BrokenRecordError(f"not a valid table row: {error}") from error
        if len(row) != self.columns:
            what = "tab" if self.delimiter == "\t" else "comma"
            raise BrokenRecordError(
                f"{len(row)} columns, but the header has {self.columns}; put captions that contain a {what} in quotes, "
                "and every row on one line"
            )
        return row[self.image], row[self.caption], "" if self.split is None else row[self.split]
