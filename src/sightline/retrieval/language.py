"""The language of a query: given by the user, or recognised among those that the model reads."""

from sightline.bundle.model import MANY_LANGUAGES, Model
from sightline.bundle.words import Words, words_in
from sightline.languages.corrections import corrected, unswapped
from sightline.languages.letters import plain_letters
from sightline.languages.recognise import recognise


def in_language(model: Model, lang: str | None, *texts: str | None) -> tuple[Model, str | None]:
    """Return the model for the language of some texts, and the language, which is None if unknown or without texts.

    lang: their language, or None to recognise it from the first of them. A language that the model lacks is rejected.
    """
    found = lang or language_of(next((text for text in texts if text), None), model)
    return (model if found is None else model.for_language(found)), found


def language_of(text: str | None, model: Model) -> str | None:
    """Return the language of a text among those of a model, or its main one if in doubt; None if it lists none.

    A text with words that the recognised language lacks is taken for a misspelt one in the main language, if that lacks
    no more of its words, and knows them once corrected.
    """
    languages = model.languages
    if text is None or not languages or MANY_LANGUAGES in languages:
        return None
    if len(languages) == 1:
        return languages[0]
    text, main = plain_letters(text), model.for_language(languages[0]).words
    words = set(words_in(text))
    found = recognise(text, languages, lambda text: all(word in main for word in words_in(text)))
    if found == languages[0] or not main:
        return found
    other = model.for_language(found).words
    if not other:
        return found
    lacking, other_lacks = [word for word in words if word not in main], sum(word not in other for word in words)
    is_misspelt = other_lacks > 0 and len(lacking) <= other_lacks and all(_is_misspelt(word, main) for word in lacking)
    return languages[0] if is_misspelt else found


def _is_misspelt(word: str, words: Words) -> bool:
    """Return whether correcting a word gives one of these."""
    return bool(corrected(word, words.ranks) or unswapped(word, words.ranks))
