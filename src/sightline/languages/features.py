"""The features by which a language is recognised: words and their letters, hashed to the rows of a table."""

import re
import zlib

from sightline.languages.scripts import is_unspaced

ROWS = 1 << 15
_WORD = re.compile(r"[^\W\d_]+")
_SHORTEST, _LONGEST = 2, 5


def features(text: str) -> list[int]:
    """Return the table rows of a text's features, with repeats: whole words, and their runs of 2 to 5 letters.

    Chinese and Japanese are written without spaces: there, features are single characters and pairs.
    """
    rows = []
    for word in _WORD.findall(text.lower()):
        if is_unspaced(word):
            rows += [_row(character) for character in word]
            rows += [_row(word[place : place + 2]) for place in range(len(word) - 1)]
            continue
        marked = f"<{word}>"
        rows.append(_row(f"={word}"))
        for length in range(_SHORTEST, min(_LONGEST, len(marked)) + 1):
            rows += [_row(marked[place : place + length]) for place in range(len(marked) - length + 1)]
    return rows


def _row(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "surrogatepass")) % ROWS
