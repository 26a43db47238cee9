"""What is wrong with the fields of a request, in plain words instead of pydantic's."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from pydantic import BaseModel

from sightline.server.limits import Limits
from sightline.unicode_text import as_unicode

_MOST = Limits().errors
_LONGEST_NAME = 100
_PARTS = frozenset({"query", "body", "path", "header"})
_BODY = "the body"
_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "string_too_short": "must not be empty",
    "string_too_long": "is too long: at most {max_length} characters",
    "string_pattern_mismatch": "must have the form {pattern}",
    "string_type": "must be text",
    "string_unicode": "is not valid Unicode",
    "too_short": "must not be empty",
    "too_long": "is too long: at most {max_length} values",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number with fewer digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "json_invalid": "is not valid JSON: {error}",
    "value_error": "{error}",
}
"""What each of pydantic's types of errors says, after the name of the field."""


class FieldError(BaseModel):
    """An invalid part of a request: its location, and what is wrong with it."""

    where: str
    what: str


def field_errors(errors: Iterable[Any]) -> list[FieldError]:
    """Return the first errors that pydantic or FastAPI reports."""
    return [FieldError(where=_where(error), what=_what(error)) for error in islice(errors, _MOST)]


def _where(error: Any) -> str:
    if error["type"] == "json_invalid":  # FastAPI gives the position in the text as the location
        return _BODY
    named = (str(part)[:_LONGEST_NAME] for part in error["loc"] if part not in _PARTS)
    return as_unicode(".".join(named)) or _BODY


def _what(error: Any) -> str:
    """Return what is wrong, as words that follow the name of the field.

    >>> _what({"type": "string_too_long", "ctx": {"max_length": 1000}})
    'is too long: at most 1,000 characters'
    """
    words, context = _WORDS.get(error["type"]), error.get("ctx", {})
    if words is None:
        return as_unicode(str(error["msg"]))
    if error["type"] == "string_pattern_mismatch" and context["pattern"] == r"\S":
        return "must not be blank"
    return as_unicode(words.format_map({name: _shown(value) for name, value in context.items()}))


def _shown(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) and abs(value) < 1e10 else str(value)
