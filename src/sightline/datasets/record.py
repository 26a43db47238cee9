"""One captioned image of a data set, and what is said about one that cannot be read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sightline.errors import DataError
from sightline.media import ImageSource

DEFAULT_LANGUAGE = "en"
"""The language of captions in the formats that do not name one."""


@dataclass(frozen=True, slots=True)
class Record:
    """An image and what people say about it.

    `captions` goes from language to captions, as many as there happen to be: never assume five. A distractor, which
    only enlarges a gallery, has none. `image` says where the bytes are and holds no pixels, so a list of all records
    of a data set is small and travels to other processes. `key` is unique among the records of one reading.
    `label` is the name of what the image shows, in data sets that sort images into classes.
    """

    key: str
    image: ImageSource
    captions: Mapping[str, tuple[str, ...]]
    split: str | None = None
    label: str | None = None

    def captions_in(self, language: str) -> tuple[str, ...]:
        """Give the captions in `language`; a `DataError` where there are none, for a gap must not pass for a match."""
        captions = self.captions.get(language, ())
        if not captions:
            there = f"has {', '.join(sorted(self.captions))}" if self.captions else "has no captions at all"
            raise DataError(
                f"record {self.key!r} ({self.image.name}): wanted captions in {language!r}, {there}",
                "Choose one of its languages, or leave out the records that lack this one.",
            )
        return captions


@dataclass(frozen=True, slots=True)
class Problem:
    """A record, or a caption of one, that was left out: where it stands (`data.jsonl:17`) and what is wrong with it."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


Report = Callable[[Problem], None]
"""Told of each problem. It returns to have the record skipped, or raises to end the reading."""


class BrokenRecordError(Exception):
    """Raised inside a reader where a record turns out broken; the reader adds the place and reports a `Problem`."""


def stop_at(problem: Problem) -> None:
    """Take a problem the strict way: the first one ends the reading."""
    raise DataError(
        str(problem),
        "Mend or remove it. Commands that have --skip-broken, and `on_problem` from Python, leave such records out and "
        "tell of each.",
    )
