"""Japanese as children read it: hiragana with spaces between phrases, and the readings of words."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bundles.text.sources import Line, tidy
from bundles.text.words import WordNet

_HAN = re.compile(r"[\u3400-\u9fff々]")
_HIRAGANA = {code: code - 96 for code in range(0x30A1, 0x30F7)}
_KATAKANA = {new: old for old, new in _HIRAGANA.items()}
_TIED = ("助詞", "助動詞", "接尾辞", "補助記号", "記号", "空白")  # particles, endings and marks
_USUAL = {"わたくし": "わたし", "にっぽん": "にほん"}
_ENTRY = re.compile(r"(\S+)(?: \[(\S+)\])? /(\((?:n|v|adj).*)/$")


@cache
def _tagger() -> Any:
    import fugashi  # with unidic-lite; only Japanese needs it

    return fugashi.Tagger()


def spelt(text: str) -> str | None:
    """Return a text without kanji, with spaces between phrases; None if a reading is unknown.

    犬が寝ている becomes いぬが ねて いる.
    """
    found, tied = "", True
    for word in _tagger()(text):
        reading = word.surface
        if _HAN.search(reading):
            if not word.feature.kana or word.feature.kana == "*":
                return None
            reading = word.feature.kana.translate(_HIRAGANA)
        found += reading if tied or word.feature.pos1 in _TIED else f" {reading}"
        tied = word.feature.pos1 == "接頭辞" or reading in "「（(『"
    for formal, usual in _USUAL.items():
        found = found.replace(formal, usual)
    return " ".join(found.replace("、", " ").split()).rstrip("。")


def respelt(line: Line) -> Iterator[Line]:
    """Yield a line, and the same line without kanji."""
    yield line
    if line.lang == "ja" and _HAN.search(line.text) and (text := spelt(line.text)):
        yield line._replace(text=text)


def edict(debian: Path, wordnet: WordNet) -> Iterator[Line]:
    """Yield words of EDICT, common ones first: things also as readings, and animals, plants and food in both kana."""
    rows = (debian / "usr/share/edict/edict").read_text(encoding="euc-jp", errors="ignore").splitlines()
    for row in sorted(rows, key=lambda row: "/(P)/" not in row):
        entry = _ENTRY.match(row)
        for number, gloss in enumerate(entry[3].split("/")[:3] if entry else ()):
            en = wordnet.known(re.sub(r"\([^)]*\)|\{[^}]*\}", " ", gloss))
            if entry is None or en is None or re.search(r"\((arch|obs|obsc|vulg|X)\b", gloss):
                continue
            word, reading = tidy(entry[1]), entry[2] or ("" if _HAN.search(entry[1]) else entry[1])
            forms = [word]
            if wordnet.is_thing(en) and number < 2 and len(reading) > 1:
                kana = reading.replace("・", "")
                forms += (
                    [kana, kana.translate(_KATAKANA), kana.translate(_HIRAGANA)] if wordnet.is_living(en) else [kana]
                )
            yield from (Line(tidy(en), "ja", text, "edict") for text in dict.fromkeys(forms))
