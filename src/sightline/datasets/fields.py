"""Validation of a record's fields: Unicode text, usable file names, non-empty captions.

Each function takes an untrusted value and returns a checked one, or raises `BrokenRecordError`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem
from sightline.media import IMAGE_SUFFIXES


def decoded(raw: bytes) -> str:
    """Read UTF-8 text, without the byte order mark that some editors put in front."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BrokenRecordError(f"byte {error.start + 1} is not UTF-8: convert the file to UTF-8") from error


def json_object(raw: bytes) -> dict[str, object]:
    """Parse the JSON object written in `raw`."""
    try:
        value = json.loads(decoded(raw))
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"not JSON: {error}") from error
    return mapping(value, "the record")


def mapping(value: object, what: str) -> dict[str, object]:
    """Return a value that must be a JSON object."""
    if not isinstance(value, dict):
        raise BrokenRecordError(f"{what} is {shown(value)}, not an object {{…}}")
    return value


def sequence(value: object, what: str) -> list[object]:
    """Return a value that must be a JSON array."""
    if not isinstance(value, list):
        raise BrokenRecordError(f"{what} is {shown(value)}, not a list […]")
    return value


def file_name(value: object, what: str) -> str:
    """Return a value that must be a valid file name; the file does not have to exist."""
    if not isinstance(value, str) or not value.strip():
        raise BrokenRecordError(f"{what} is {shown(value)}, not a file name")
    if "\0" in value or not is_unicode(value):
        raise BrokenRecordError(f"{what} is {shown(value)}, not a valid file name")
    return value


def key_of(name: str) -> str:
    """Return the default key of an image: its file name without folder and image suffix."""
    path = PurePath(name)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


def captions_of(fields: Mapping[str, object], place: str, report: OnProblem) -> dict[str, tuple[str, ...]] | None:
    """Find the captions in `captions` (a list, or lists by language) or `caption` (one text); None if both are missing.

    An empty caption is reported and dropped; a caption that is not text raises `BrokenRecordError`.
    """
    value = fields.get("captions", fields.get("caption"))
    if value is None:
        return {} if fields.keys() & {"captions", "caption"} else None
    languages = value if isinstance(value, dict) else {DEFAULT_LANGUAGE: value}
    table = {}
    for language, texts in languages.items():
        if not language.strip():
            raise BrokenRecordError("'captions' has an empty language name")
        listed = [texts] if isinstance(texts, str) else sequence(texts, f"captions in {language!r}")
        if captions := clean_captions(listed, place, report):
            table[language] = captions
    return table


def label_of(fields: Mapping[str, object]) -> str | None:
    """Return the class in a record's `label`, a string or an integer; None if there is none."""
    value = fields.get("label")
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not is_unicode(value):
        raise BrokenRecordError(f"'label' is {shown(value)}, not text")
    return value.strip() or None


def clean_captions(texts: Iterable[object], place: str, report: OnProblem) -> tuple[str, ...]:
    """Strip whitespace around captions, keeping their order; empty captions are reported and dropped."""
    captions = []
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise BrokenRecordError(f"caption {number} is {shown(text)}, not text")
        if not is_unicode(text):
            raise BrokenRecordError(f"caption {number} has a lone surrogate, which is not valid Unicode")
        if stripped := text.strip():
            captions.append(stripped)
        else:
            report(Problem(place, f"caption {number} is empty"))
    return tuple(captions)


def shown(value: object) -> str:
    """Format a value for a message, shortened."""
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def is_unicode(text: str) -> bool:
    """Return whether text is valid Unicode: JSON may contain lone surrogates, which a tokenizer would reject later."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
