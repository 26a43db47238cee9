"""The words that a model was trained on, and how familiar a text's words are to the model."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

_WORD = re.compile(r"[^\W\d_]+")

FUNCTION_WORDS = frozenset(
    (
        *("a", "an", "the", "in", "on", "of", "and", "with", "to", "is", "are", "at", "his", "her", "its", "their"),
        *("it", "one", "some", "that", "this", "there", "while", "as", "by", "for", "from", "into", "over", "through"),
        *("up", "down", "out", "off", "near", "next", "front", "behind", "other", "another", "each", "who", "which"),
        *("has", "have", "be", "being", "photo", "picture", "image"),
    )
)
"""Words that say little about what an image shows."""

_MEDIA = frozenset(("photo", "picture", "image"))  # a picture may hang on a wall
_FILLERS = (FUNCTION_WORDS - _MEDIA - {"one"}) | frozenset(  # "one" is a number, as "two" is
    (
        *("i", "you", "we", "me", "us", "my", "your", "our", "these", "those", "or", "but", "not", "if", "so", "than"),
        *("then", "was", "were", "am", "do", "does", "did", "what", "when", "where", "why", "how", "about", "any"),
    )
)

COLOURS = ("black", "white", "brown", "red", "blue", "green", "yellow", "orange", "pink", "purple", "grey")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Words(Sequence[str]):
    """The words of the captions that a model was trained on, most frequent first; empty if unknown.

    >>> words = Words(["a", "dog", "zebra"])
    >>> "zebras" in words, "lion" in words
    (True, False)
    >>> words.familiarity("a") > words.familiarity("a dog") > words.familiarity("a lion")
    True
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._words = tuple(words)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each word, 0 for the most frequent."""
        return {word: rank for rank, word in enumerate(self._words)}

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        return self._words[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and (word in self.ranks or word.removesuffix("s") in self.ranks)

    def familiarity(self, text: str) -> float:
        """Return the familiarity of a text's least frequent word: 1 for the most frequent word of all, 0 if unknown."""
        return min(map(self._of_word, words_in(text)), default=0.0) if self._words else 0.0

    def _of_word(self, word: str) -> float:
        most = len(self._words)
        rank = min(self.ranks.get(word, most), self.ranks.get(word.removesuffix("s"), most))
        return 1 - math.log1p(rank) / math.log1p(most)


def most_frequent(captions: Iterable[str], least: int = 4) -> list[str]:
    """Return the words that occur in at least `least` captions, most frequent first.

    >>> most_frequent(["A dog", "a cat", "two dogs"], least=2)
    ['a']
    """
    counts = Counter(word for caption in captions for word in set(words_in(caption)))
    return [word for word, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if count >= least]


def has_content_words(text: str) -> bool:
    """Return whether an English text has other words than fillers such as "the": some that say what an image shows.

    Words in capitals may be abbreviations, unless all words of a text are in capitals. A number says something by
    itself, but not after fillers.

    >>> [has_content_words(text) for text in ("in the", "in the snow", "US", "in 1950")]
    [False, True, True, False]
    """
    words = re.findall(r"\w+", text)
    words = [word for word in words if not word.isdecimal()] or words
    if len(words) > 1 and text.isupper():
        words = [word.lower() for word in words]
    return any(word.lower() not in _FILLERS or (len(word) > 1 and word.isupper()) for word in words)


def words_in(text: str) -> list[str]:
    """Return the words of a text in lower case; numbers and punctuation are left out."""
    return [match.group().lower() for match in _WORD.finditer(text)]
