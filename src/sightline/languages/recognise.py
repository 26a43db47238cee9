"""Recognise the language of a query: by its script, and by its words and letters where languages share one.

bundles/language_table.py builds the table; benchmarks/languages measures how often it is right.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sightline.arrays import Float64Array
from sightline.languages.features import features
from sightline.languages.scripts import LATIN, foreign_letters, script_counts, scripts_of

_HERE = Path(__file__).parent
_FOREIGN = 2  # non-Latin letters that decide the script; fewer may be symbols, such as µ
_IDEOGRAPHS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")  # a single one may be a word
_LEAST_LETTERS = 3  # the fewest letters to recognise a language by
_MARGIN = 0.5
"""How much higher another language must score than the main one, to which shared words mostly belong."""

_KNOWN_MARGIN = 4.0
"""The same, if the model knows all words of the query in its main language."""

_SINGLE_MARGIN = 2.0
"""The same for a single word, which is often a name."""

_SINGLE_KNOWN_MARGIN = 6.0
"""The same for a single word that the model knows in its main language, such as "piano"."""

_PER_FOREIGN, _MOST_FOREIGN = 3.0, 2  # penalty for a letter that a language does not use; most that count


class Table(NamedTuple):
    """The weights, int8 [rows, languages], memory-mapped; their scale; and the bias [languages]."""

    columns: dict[str, int]
    weights: np.ndarray
    scale: float
    bias: Float64Array

    def scores(self, text: str, languages: Sequence[str]) -> Float64Array:
        """Return a logit for each language, [languages]; only their differences are meaningful."""
        chosen = [self.columns[lang] for lang in languages]
        rows = features(text)
        total = self.weights[rows].sum(axis=0, dtype=np.int64)[chosen]
        foreign = np.array([min(_MOST_FOREIGN, foreign_letters(text, lang)) for lang in languages])
        found = total * (self.scale / max(1, len(rows)) ** 0.5) + self.bias[chosen] - _PER_FOREIGN * foreign
        return np.asarray(found, dtype=np.float64)


@cache
def table() -> Table:
    """Return the table in the package; opening it reads only a page or two."""
    about = json.loads((_HERE / "table.json").read_text(encoding="utf-8"))
    weights = np.load(_HERE / "table.npy", mmap_mode="r")
    columns = {lang: column for column, lang in enumerate(about["languages"])}
    return Table(columns, weights, about["scale"], np.array(about["bias"]))


def recognise(text: str, languages: Sequence[str], is_known: Callable[[str], bool] = lambda text: False) -> str:
    """Return the most likely of these languages (the main one first) for a text; the main one if in doubt.

    is_known: whether the model knows all words of a text in its main language.

    >>> recognise("Hund am Strand", ["en", "de", "fr"]), recognise("собака на пляже", ["en", "ru"])
    ('de', 'ru')
    """
    main = languages[0]
    possible = _by_script(text, languages)
    if len(possible) < 2:
        return possible[0] if possible else main
    learned = [lang for lang in possible if lang in table().columns]
    if main not in possible:
        return learned[int(table().scores(text, learned).argmax())] if learned else possible[0]
    if main not in learned or sum(map(str.isalpha, text)) < _LEAST_LETTERS:
        return main
    scores = table().scores(text, learned)
    best = int(scores.argmax())
    is_single = len(text.split()) == 1
    margin, known_margin = (_SINGLE_MARGIN, _SINGLE_KNOWN_MARGIN) if is_single else (_MARGIN, _KNOWN_MARGIN)
    if scores[best] - scores[learned.index(main)] < known_margin and is_known(text):
        return main
    return learned[best] if scores[best] - scores[learned.index(main)] >= margin else main


def _by_script(text: str, languages: Sequence[str]) -> list[str]:
    """Return the languages that are written in the script of a text."""
    counts = script_counts(text)
    foreign = {name: count for name, count in counts.items() if name != LATIN}
    if "HIRAGANA" in foreign or "KATAKANA" in foreign:
        kana = [lang for lang in languages if "HIRAGANA" in scripts_of(lang)]
        if kana:
            return kana
    decisive = {name: count for name, count in foreign.items() if name in _IDEOGRAPHS or count >= _FOREIGN}
    known = [name for name in decisive if any(name in scripts_of(lang) for lang in languages)]
    chosen = max(known, key=lambda name: decisive[name], default=LATIN)
    if chosen == "CJK" and "HANGUL" not in counts:
        return [lang for lang in languages if "CJK" in scripts_of(lang) and lang != "ko"]
    return [lang for lang in languages if chosen in scripts_of(lang)]
