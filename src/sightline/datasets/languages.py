"""Captions in several languages at once."""

from collections.abc import Sequence

from sightline.datasets.record import Record
from sightline.errors import DataError


def captions_in_any(record: Record, languages: str | Sequence[str]) -> tuple[str, ...]:
    """The captions of a record in one language or several; it must have at least one of them."""
    if isinstance(languages, str):
        return record.captions_in(languages)
    captions = tuple(caption for language in languages for caption in record.captions.get(language, ()))
    if not captions:
        raise DataError(
            f"record {record.key!r} ({record.image.name}): wanted captions in one of {', '.join(languages)}, "
            f"has {', '.join(sorted(record.captions)) or 'no captions at all'}",
            "Add one of its languages, or leave out the records that lack them.",
        )
    return captions
