"""A captioned image of a data set, and problems with records that cannot be read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sightline.errors import DataError
from sightline.media import ImageSource

DEFAULT_LANGUAGE = "en"
"""The language of captions in the formats that do not name one."""


@dataclass(frozen=True, slots=True)
class Record:
    """An image and its captions.

    `captions` maps a language to any number of captions, not necessarily five. A distractor, which only enlarges a
    gallery, has none. `image` locates the bytes and holds no pixels, so a list of all records of a data set is small
    and can be sent to other processes. `key` is unique among the records of one read. `label` is the class of the
    image, in data sets that have classes.
    """

    key: str
    image: ImageSource
    captions: Mapping[str, tuple[str, ...]]
    split: str | None = None
    label: str | None = None

    def captions_in(self, language: str) -> tuple[str, ...]:
        """Return the captions in `language`; raises `DataError` if there are none."""
        captions = self.captions.get(language, ())
        if not captions:
            there = f"has {', '.join(sorted(self.captions))}" if self.captions else "has no captions at all"
            raise DataError(
                f"record {self.key!r} ({self.image.name}): needs captions in {language!r}, but {there}",
                "Choose another language, or leave out such records (`eval` and `compare`: --skip-missing-language).",
            )
        return captions


@dataclass(frozen=True, slots=True)
class Problem:
    """A skipped record or caption: its place (`data.jsonl:17`) and what is wrong with it."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


OnProblem = Callable[[Problem], None]
"""Called with each problem: returns to skip the record, or raises to stop reading."""


class BrokenRecordError(Exception):
    """Raised inside a reader for a broken record; the reader adds the place and reports a `Problem`."""


def stop_at(problem: Problem) -> None:
    """Raise a `DataError` for the first problem."""
    raise DataError(
        str(problem),
        "Repair or remove it, or skip such records with --skip-broken or, in Python, `on_problem`.",
    )


def refuse(problem: Problem) -> None:
    """Raise a `DataError` for the first problem of data from which no record can be left out."""
    raise DataError(str(problem), "Repair or remove it.")


def captions_in_any(record: Record, languages: str | Sequence[str]) -> tuple[str, ...]:
    """Return the captions of a record in any of the languages; raises `DataError` if there are none."""
    if isinstance(languages, str):
        return record.captions_in(languages)
    captions = tuple(caption for language in languages for caption in record.captions.get(language, ()))
    if not captions:
        raise DataError(
            f"record {record.key!r} ({record.image.name}): needs captions in one of {', '.join(languages)}, but "
            f"has {', '.join(sorted(record.captions)) or 'no captions at all'}",
            "Add captions in one of these languages, or leave out such records.",
        )
    return captions
