"""The questions of an evaluation, laid out flat: pictures, captions, and which caption belongs to which picture."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.datasets import Record
from sightline.errors import DataError
from sightline.media import ImageSource


@dataclass(frozen=True, slots=True)
class Questions:
    """Pictures that are asked about, with all their captions in one language, and pictures that only distract.

    image_of: [captions], index into `images`. skipped: how many records were left out for want of the language.
    """

    images: tuple[ImageSource, ...]
    captions: tuple[str, ...]
    image_of: npt.NDArray[np.int64]
    distractors: tuple[ImageSource, ...]
    skipped: int
    fingerprint: str

    @staticmethod
    def of(
        records: Sequence[Record], lang: str, distractors: Sequence[Record] = (), skip_missing_language: bool = False
    ) -> "Questions":
        """Lay out records; one without captions in `lang` is refused, or left out with its picture if so wished.

        Of the distractors only the pictures count (see `protocols`), and none may be one of the records' as well: it
        would tie with itself.
        """
        asked = [record for record in records if record.captions.get(lang)] if skip_missing_language else records
        if not asked:
            raise DataError(
                f"none of {len(records)} records has captions in {lang!r}" if records else "no records to evaluate on",
                "Choose another data set, split or language.",
            )
        _refuse_repeated(asked, distractors)
        captions = [record.captions_in(lang) for record in asked]
        return Questions(
            images=tuple(record.image for record in asked),
            captions=tuple(caption for some in captions for caption in some),
            image_of=np.repeat(np.arange(len(asked)), [len(some) for some in captions]),
            distractors=tuple(record.image for record in distractors),
            skipped=len(records) - len(asked),
            fingerprint=_fingerprint(asked, captions),
        )


def _refuse_repeated(records: Sequence[Record], distractors: Sequence[Record]) -> None:
    keys: set[str] = set()
    for record in records:
        if record.key in keys:
            raise DataError(f"two records are called {record.key!r}", "List each picture once, with all its captions.")
        keys.add(record.key)
    names = {record.image.name for record in records}
    for record in distractors:
        if record.image.name in names:
            raise DataError(
                f"{record.image.name} is twice in the gallery, where it would tie with itself",
                "Leave the pictures that are asked about, and repeated ones, out of the distractors.",
            )
        names.add(record.image.name)


def _fingerprint(records: Sequence[Record], captions: Sequence[tuple[str, ...]]) -> str:
    digest = hashlib.sha256()
    for record, some in zip(records, captions, strict=True):
        digest.update("\0".join((record.key, *some, "")).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
