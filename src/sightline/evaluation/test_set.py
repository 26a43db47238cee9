"""The questions of an evaluation, laid out flat: pictures, captions, and which caption belongs to which picture."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.datasets import Record
from sightline.errors import DataError
from sightline.media import ImageSource


@dataclass(frozen=True, slots=True)
class Questions:
    """Pictures that are asked about, with all their captions in one language, and pictures that only distract.

    image_of: [captions], index into `images`. skipped: how many records were left out for want of the language.
    asked: how many of the images are asked about, the first ones. The others and their captions are only in the way.
    """

    images: tuple[ImageSource, ...]
    captions: tuple[str, ...]
    image_of: Int64Array
    distractors: tuple[ImageSource, ...]
    skipped: int
    fingerprint: str
    asked: int

    @staticmethod
    def of(
        records: Sequence[Record],
        lang: str,
        distractors: Sequence[Record] = (),
        skip_missing_language: bool = False,
        asks: str | None = None,
    ) -> "Questions":
        """Lay out records; one without captions in `lang` is refused, or left out with its picture if so wished.

        Of the distractors only the pictures count (see `protocols`), and none may be one of the records' as well: it
        would tie with itself. `asks` names the split that is asked about: records of others are in the way with their
        captions, or, without any in `lang`, as distractors.
        """
        wanted = _of_split(records, asks) if asks is not None else records
        asked = [record for record in wanted if record.captions.get(lang)] if skip_missing_language else wanted
        if not asked:
            raise DataError(
                f"none of {len(wanted)} records has captions in {lang!r}" if records else "no records to evaluate on",
                "Choose another data set, split or language.",
            )
        others = [record for record in records if record.split != asks] if asks is not None else []
        shown = [*asked, *(record for record in others if record.captions.get(lang))]
        distractors = [*(record for record in others if not record.captions.get(lang)), *distractors]
        _refuse_repeated(shown, distractors)
        captions = [record.captions_in(lang) for record in shown]
        return Questions(
            images=tuple(record.image for record in shown),
            captions=tuple(caption for some in captions for caption in some),
            image_of=np.repeat(np.arange(len(shown)), [len(some) for some in captions]),
            distractors=tuple(record.image for record in distractors),
            skipped=len(wanted) - len(asked),
            fingerprint=_fingerprint(shown, captions),
            asked=len(asked),
        )


def _of_split(records: Sequence[Record], split: str) -> list[Record]:
    """The records of a split, among others; refused where there are none of it, or no others."""
    found = [record for record in records if record.split == split]
    if not 0 < len(found) < len(records):
        raise DataError(
            f"the images of split {split!r} are to be found among all others, and of {len(records)} records "
            f"{'all' if found else 'none'} are of it",
            "Give the data of all splits: train, val and test.",
        )
    return found


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
