"""Suggestions for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice most similar to a misspelt name, or None if none is similar."""
    matches = get_close_matches(name, list(choices), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def did_you_mean(name: str, choices: Iterable[str], otherwise: str = "Choose from") -> str:
    """Return a hint for an unknown name: the closest choice or, if none is similar, all of them.

    >>> did_you_mean("widht", ["width", "height"])
    'Did you mean "width"?'
    >>> did_you_mean("depth of field", ["width", "height"])
    'Choose from: width, height.'
    """
    choices = list(choices)
    match = closest(name, choices)
    return f'Did you mean "{match}"?' if match else f"{otherwise}: {', '.join(choices)}."
