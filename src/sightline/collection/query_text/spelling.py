"""Check a query's words before a search: whether the model can read them, and which may be misspelt."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sightline.bundle.model import MANY_LANGUAGES
from sightline.bundle.words import Words, has_content_words, words_in
from sightline.languages.corrections import corrected, unswapped
from sightline.languages.scripts import INFLECTED, NAMES, is_unspaced, script, scripts_of

_FEW = 3  # languages that a notice lists

Known = Callable[[str], bool]
"""A function that returns whether a lower-case word is known."""


@dataclass(frozen=True, slots=True)
class Wording:
    """Problems with the words of a query.

    notice: a one-line message if the model cannot read the query.
    did_you_mean: the query with misspelt words replaced.
    has_content: whether any word or symbol of the query says what an image shows; if not, nothing is relevant to it.
    """

    notice: str | None = None
    did_you_mean: str | None = None
    has_content: bool = True


def check_wording(
    text: str,
    languages: Sequence[str],
    words: Words | None = None,
    is_whole: Known = lambda word: True,
    also: Callable[[], Sequence[str]] = lambda: (),
    lang: str | None = None,
    knows_any: Known = lambda text: False,
) -> Wording:
    """Check the words of a query.

    languages: the codes of the languages that the model reads.
    words: the words that the model was trained on; if empty, no word counts as unknown.
    is_whole: whether a word is a single token, so that the text encoder may know it anyway.
    also: returns other words that may be meant, such as words in file names; called only if a word is unknown.
    knows_any: whether any part of a text is in the model's vocabulary; called for symbols, such as emoji.
    lang: the query's language, if known. In an inflected one no word counts as unknown: most would be correct forms.

    >>> check_wording("🐶", ["en"]).notice
    'No words to search for: describe what the image shows in English.'
    >>> check_wording("a brwon dog", ["en"], Words(["a", "dog", "brown"]), is_whole=lambda word: False).did_you_mean
    'a brown dog'
    """
    letters = [character for character in text if character.isalpha()]
    symbols = "".join(character for character in text if unicodedata.category(character).startswith("S"))
    has_symbols = bool(symbols) and knows_any(symbols)
    if not letters and not has_symbols and not any(character.isdigit() for character in text):
        reads = _listed(languages, joined_by="or")
        where = f" in {reads}" if reads else ""
        return Wording(f"No words to search for: describe what the image shows{where}.", has_content=False)
    if lang == "en" and not has_symbols and not has_content_words(text):
        return Wording("These words do not say what an image shows; results are arbitrary.", has_content=False)
    scripts = {own for language in languages for own in scripts_of(language)}
    foreign = [letter for letter in letters if script(letter) not in scripts]
    if languages and MANY_LANGUAGES not in languages and 2 * len(foreign) > len(letters):
        reads = _listed(languages)
        return Wording(f"The model reads {reads}; it was not trained on this script, so results are arbitrary.")
    if not words or lang in INFLECTED or is_unspaced(text):  # without spaces, words cannot be separated
        return Wording()
    return _against_words(text, _listed(languages, lang), words, is_whole, also)


def _against_words(text: str, reads: str, words: Words, is_whole: Known, also: Callable[[], Sequence[str]]) -> Wording:
    """Compare a query with the words that a model was trained on."""
    own = [word for word in words_in(text) if len(word) > 1]
    untrained = [word for word in own if word not in words]
    unknown = {word for word in untrained if not is_whole(word)}
    if not own or (not unknown and 2 * len(untrained) <= len(own)):
        return Wording()
    names = [word for word in also() if word not in words] if unknown else []
    unknown -= set(names)
    choices = {**words.ranks, **{word: len(words) + place for place, word in enumerate(names)}}
    better = {word: found for word in unknown if (found := corrected(word, choices))}
    if better:  # among misspelt words, a short one with two letters swapped is no abbreviation
        better |= {word: found for word in unknown - better.keys() if (found := unswapped(word, choices))}
    if better and (len(own) == 1 or len(better) == len(set(untrained)) or 2 * len(untrained) <= len(own)):
        return Wording(did_you_mean=re.sub(_WORD, lambda match: better.get(match.group().lower(), match.group()), text))
    if 2 * len(untrained) <= len(own) or not unknown:
        return Wording()
    shown = f"“{own[0]}”" if len(own) == 1 else "most of these words"
    it_reads = f" (it reads {reads})" if reads else ""
    return Wording(f"The model was not trained on {shown}{it_reads}; results may be arbitrary.")


_WORD = r"[^\W\d_]+"


def _listed(languages: Sequence[str], lang: str | None = None, joined_by: str = "and") -> str:
    """Return the languages by their English names, if known; empty for a model that reads many without listing them.

    Of more than a few, only the query's language, or else the main one, and the number of others.
    """
    if not languages or MANY_LANGUAGES in languages:
        return ""
    names = [NAMES.get(language, language) for language in languages]
    if len(names) > _FEW:
        chosen = languages.index(lang) if lang in languages else 0
        return f"{names[chosen]} {joined_by} {len(names) - 1} other languages"
    return f" {joined_by} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
