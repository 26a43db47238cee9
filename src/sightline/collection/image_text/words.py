"""Find the words of a query in recognised text, and measure how many of them a text contains.

Recognised text often lacks the spaces between words ("Totalamount"), so words are also looked for inside longer ones.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from sightline.media.ocr import Corners, TextLine

_WORD = re.compile(r"\w+(?:[.,:/'’@&+-]\w+)*")
_QUOTED = re.compile(r'"([^"]*)"|“([^“”]*)”|„([^„“”]*)[“”]|«([^«»]*)»')
_MOST_WORDS = 32
_LONG = 8  # letters; longer words get no more weight
_COMMON = """a an and are as at be but by for from has have i in is it its me my of on or our that the their there these
they this to was we were what when where which who with you your not no do does der die das und ein eine ist mit auf
photo picture image pictures photos images showing shows"""
_STOP = frozenset(_COMMON.split())


class TextMatch(NamedTuple):
    """Which of a query's words a text contains.

    coverage: the share of the words that the text contains, 0 to 1; long words count more. words: how many it contains.
    quote: the line that contains most of them.
    """

    coverage: float
    words: int
    quote: str


class MarkedLine(NamedTuple):
    """A line of text with its corners, and the corners of a query's words in it."""

    text: str
    corners: Corners
    marks: tuple[Corners, ...]


def fold(text: str) -> str:
    """Convert a text to lower case and remove accents, for comparing texts.

    >>> fold("Café ＣＲÈＭＥ")
    'cafe creme'
    """
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def split_quotes(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the words of a query outside quotes, and the quoted phrases.

    >>> split_quotes('a sign "no parking" in “Main Street”')
    ('a sign in', ('no parking', 'Main Street'))
    """
    quoted = ["".join(part or "" for part in found.groups()).strip() for found in _QUOTED.finditer(text)]
    return " ".join(_QUOTED.sub(" ", text).split()), tuple(part for part in quoted if part)


def query_words(text: str) -> tuple[str, ...]:
    """Return the folded words of a query to look for in images, without stop words.

    >>> query_words("The invoice of Café No. 84-1129")
    ('invoice', 'cafe', '84-1129')
    """
    words = [word for word in _WORD.findall(fold(text)) if word not in _STOP and (len(word) >= 3 or not word.isascii())]
    return tuple(dict.fromkeys(words))[:_MOST_WORDS]


def match(words: Sequence[str], lines: Sequence[TextLine]) -> TextMatch:
    """Measure how many of a query's folded words the recognised lines contain."""
    folded = [fold(line.text) for line in lines]
    body = "\n".join(folded)
    found = {word: _certainty(word, body) for word in words}
    total = sum(_weight(word) for word in words)
    coverage = sum(_weight(word) * certainty for word, certainty in found.items()) / total if total else 0.0
    present = [word for word, certainty in found.items() if certainty > 0]
    best = max(
        range(len(lines)), key=lambda at: sum(_weight(word) for word in present if word in folded[at]), default=0
    )
    return TextMatch(coverage, len(present), lines[best].text if lines else "")


def contains(quoted: str, lines: Sequence[TextLine]) -> bool:
    """Return whether a text contains a quoted phrase; spaces and line breaks do not matter."""
    return _squashed(quoted) in _squashed("\n".join(line.text for line in lines))


def marked(words: Sequence[str], quoted: Sequence[str], lines: Sequence[TextLine]) -> list[MarkedLine]:
    """Return the lines, with a query's words and quoted phrases marked."""
    found = []
    for line in lines:
        folded, places = _folded_with_places(line.text)
        spans: list[tuple[int, int]] = []
        for part in (*words, *(piece for one in quoted for piece in _WORD.findall(fold(one)))):
            spans += [(places[at.start()], places[at.end() - 1] + 1) for at in re.finditer(re.escape(part), folded)]
        marks = tuple(
            _part(line.corners, start / len(line.text), end / len(line.text)) for start, end in sorted(set(spans))
        )
        found.append(MarkedLine(line.text, line.corners, marks))
    return found


def _certainty(word: str, body: str) -> float:
    """Return how certain it is, 0 to 1, that a text contains a word; a short word may occur in a longer one by chance.

    >>> [_certainty("cat", text) for text in ("a cat sat", "category", "educated", "dog")]
    [1.0, 0.5, 0.2, 0.0]
    """
    best = 0.0
    for found in re.finditer(re.escape(word), body):
        open_left = found.start() == 0 or not body[found.start() - 1].isalnum()
        open_right = found.end() == len(body) or not body[found.end()].isalnum()
        if (open_left and open_right) or not word.isascii():
            return 1.0
        long = len(word) >= 5
        best = max(best, (0.9 if long else 0.5) if open_left or open_right else (0.8 if long else 0.2))
    return best


def _weight(word: str) -> int:
    return min(len(word), _LONG)


def _squashed(text: str) -> str:
    return "".join(fold(text).split())


def _folded_with_places(text: str) -> tuple[str, list[int]]:
    """Return a folded text, and for each of its letters the position of the original letter."""
    letters, places = [], []
    for place, letter in enumerate(text):
        for one in fold(letter):
            letters.append(one)
            places.append(place)
    return "".join(letters), places


def _part(corners: Corners, start: float, end: float) -> Corners:
    """Return the corners of a part of a line, given as fractions of its length, assuming letters of equal width."""
    top_left, top_right, bottom_right, bottom_left = corners

    def between(one: tuple[float, float], other: tuple[float, float], share: float) -> tuple[float, float]:
        return tuple(round(a + (b - a) * share, 4) for a, b in zip(one, other, strict=True))  # type: ignore[return-value]

    return (
        between(top_left, top_right, start),
        between(top_left, top_right, end),
        between(bottom_left, bottom_right, end),
        between(bottom_left, bottom_right, start),
    )
