"""Correct misspelt words by the words that a model was trained on."""

from collections.abc import Mapping
from difflib import get_close_matches
from string import ascii_lowercase

_LEAST_LETTERS = 4  # minimum length of a word that may be misspelt
_MOST_LETTERS = 40  # all edits of a word take memory with the square of its length
_LONG = 6  # minimum length of a word that may have two errors
_COMMON = 2_500  # rank; a rarer word is not what an abbreviation such as GTO means
_LIKENESS = 0.79  # minimum similarity of a long word and its correction


def corrected(word: str, choices: Mapping[str, int]) -> str | None:
    """Return the most likely correction of a misspelt word; None if there is none.

    choices: the rank of each word; 0 is the most frequent.

    >>> corrected("elefant", {"element": 0, "elephant": 1, "infant": 2})
    'elephant'
    """
    if not _LEAST_LETTERS <= len(word) <= _MOST_LETTERS:
        return None
    near = {edit for edit in _one_edit_away(word) if edit in choices}
    if len(word) >= _LONG:
        alike = [one for one in choices if one[:1] == word[0] and abs(len(one) - len(word)) < 3]
        near |= set(get_close_matches(word, alike, cutoff=_LIKENESS))
        near = near or {one for one in alike if sorted(one) == sorted(word)}  # "bycicle"
    return min(near, key=lambda one: choices[one], default=None)


def unswapped(word: str, choices: Mapping[str, int]) -> str | None:
    """Return the one common word that three letters become if two neighbours are swapped; None if there is not one.

    >>> unswapped("dgo", {"dog": 0, "go": 1}), unswapped("asn", {"san": 0, "ans": 1})
    ('dog', None)
    """
    if len(word) != _LEAST_LETTERS - 1:
        return None
    swapped = {word[1] + word[0] + word[2], word[0] + word[2] + word[1]} & choices.keys()
    return next(iter(swapped)) if len(swapped) == 1 and choices[min(swapped)] < _COMMON else None


def _one_edit_away(word: str) -> set[str]:
    """Return all words made by deleting, transposing, replacing or inserting one letter."""
    parts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    return (
        {left + right[1:] for left, right in parts if right}
        | {left + right[1] + right[0] + right[2:] for left, right in parts if len(right) > 1}
        | {left + letter + right[1:] for left, right in parts if right for letter in ascii_lowercase}
        | {left + letter + right for left, right in parts for letter in ascii_lowercase}
    )
