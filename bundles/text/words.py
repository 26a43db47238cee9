"""Dictionary words: which translations are worth learning."""

import gzip
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bundles.text import sources
from bundles.text.sources import LANGUAGES, THREE_LETTERS, Line, rows, tidy

# WordNet's files: acts, animals, artifacts, bodies, food, places, objects, people, phenomena, plants, substances
_THINGS = frozenset((4, 5, 6, 8, 13, 15, 17, 18, 19, 20, 27))
_LIVING = frozenset((5, 13, 20))
_MOST = {"other": 10_000, "compound": 5_000}  # lines per language for words that are not things, or not in WordNet
_SCRIPTS = {"ar": "ARABIC", "el": "GREEK", "he": "HEBREW", "hi": "DEVANAGARI", "ko": "HANGUL", "ru": "CYRILLIC"}
_SCRIPTS |= {"uk": "CYRILLIC", "zh": "CJK", "ja": "HIRAGANA KATAKANA CJK KATAKANA-HIRAGANA"}
_NOTE = re.compile(r"<[^>]*>|\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|/[^/]*/|^\s*\d+\.|\d+\.\s*$")
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class WordNet:
    """Princeton WordNet: the words of each meaning, and the meanings of each word, most frequent first."""

    def __init__(self, folder: Path) -> None:
        self.words: dict[str, list[str]] = {}
        self._senses: dict[str, list[str]] = defaultdict(list)
        self._files: dict[str, int] = {}
        self._spelling: dict[str, str] = {}
        for pos, name in (("n", "noun"), ("v", "verb"), ("a", "adj")):
            for cells in (row.split() for row in rows(folder / f"data.{name}") if not row.startswith("  ")):
                words = [re.sub(r"\(.*\)$", "", w).replace("_", " ") for w in cells[4 : 4 + 2 * int(cells[3], 16) : 2]]
                self.words[f"{cells[0]}-{pos}"] = words
                self._files[f"{cells[0]}-{pos}"] = int(cells[1])
                for word in words:
                    self._spelling.setdefault(word.lower(), word)
            for cells in (row.split() for row in rows(folder / f"index.{name}") if not row.startswith("  ")):
                self._senses[cells[0].replace("_", " ")] += [f"{one}-{pos}" for one in cells[-int(cells[2]) :]]

    def __contains__(self, english: str) -> bool:
        return english.lower() in self._spelling

    def known(self, english: str) -> str | None:
        """Return the usual spelling of a word, or of a compound of known words; None for others."""
        text = re.sub(r"^(an?|the|to)\s+", "", english.strip().lower())
        parts = text.split()
        compound = text if 2 <= len(parts) <= 4 and all(part in self._spelling for part in parts) else None
        return self._spelling.get(text, compound)

    def is_main(self, english: str, meaning: str) -> bool:
        """Return whether a meaning is one of the first two meanings of a word with its part of speech."""
        return meaning in [one for one in self._senses[english.lower()] if one[-1] == meaning[-1]][:2]

    def files(self, english: str) -> list[int]:
        """Return the WordNet files of a noun's first two meanings; an unknown compound counts as its last word."""
        word = english.lower() if english.lower() in self._senses else english.lower().split()[-1]
        return [self._files[one] for one in self._senses.get(word, ()) if one.endswith("n")][:2]

    def is_thing(self, english: str) -> bool:
        """Return whether a word names something that a photo can show."""
        found = self.files(english)
        return bool(found) and (found[0] in _THINGS or found[-1] in _THINGS - {4})

    def is_living(self, english: str) -> bool:
        """Return whether a word names an animal, a plant or food."""
        return bool(_LIVING.intersection(self.files(english)))


def omw(github: Path, wordnet: WordNet) -> Iterator[Line]:
    """Yield the words of Open Multilingual Wordnet, with the English words that have the same main meaning."""
    for path in sorted((github / "omw/wns").rglob("wn-*.tab")):
        found = re.fullmatch(r"wn-(data|wikt|cldr|nodia)-(\w+)\.tab", path.name)
        lang = THREE_LETTERS.get(found[2]) if found else None
        if lang is None or path.name == "wn-data-arb.tab":
            continue
        for cells in (row.split("\t") for row in rows(path)):
            if len(cells) < 3 or not cells[1].endswith("lemma") or "GAP!" in cells[2]:
                continue
            meaning, text = cells[0].replace("-s", "-a"), re.sub(r"[_+]", " ", cells[2]).strip()
            for en in wordnet.words.get(meaning, ()) if 0 < len(text.split()) <= 5 else ():
                if wordnet.is_main(en, meaning):
                    yield Line(tidy(en), lang, tidy(text), "omw")


def freedict(debian: Path, wordnet: WordNet) -> Iterator[Line]:
    """Yield the nouns, verbs and adjectives of FreeDict's dictionaries from and to English."""
    for source, target, path in sources.freedict(debian):
        lang = THREE_LETTERS.get(target if source == "eng" else source)
        if lang is None or "eng" not in (source, target) or source == "jpn":
            continue
        for head, *others in _entries(path):
            marks = re.findall(r"<([^>]*)>", head)
            word = re.sub(r"<[^>]*>|\([^)]*\)|\[[^\]]*\]|/.*/", " ", head).split(",")[0].strip()
            if marks and not re.search(r"\b(n|v|vt|vi|adj|a|N|V|VT|VI|Adj|masc|fem|neut|sg)\b", marks[-1]):
                continue
            for text in _senses(others) if 0 < len(word.split()) <= 4 else ():
                english, foreign = (word, text) if source == "eng" else (text, word)
                if en := wordnet.known(english):
                    yield Line(tidy(en), lang, tidy(foreign), "freedict")


def _entries(path: Path) -> Iterator[list[str]]:
    """Yield the lines of each entry of a dictd dictionary."""
    content, seen = gzip.decompress(path.with_suffix(".dict.dz").read_bytes()), set()
    for cells in (row.split("\t") for row in rows(path)):
        if len(cells) > 2 and not cells[0].startswith("00") and cells[1] not in seen:
            seen.add(cells[1])
            start, size = (sum(_DIGITS.index(c) * 64**n for n, c in enumerate(reversed(cell))) for cell in cells[1:3])
            yield content[start : start + size].decode("utf-8", "replace").split("\n")


def _senses(entry: Iterable[str]) -> Iterator[str]:
    """Yield the translations in an entry: its first line and its numbered lines, without grammar and notes."""
    first = True
    for row in entry:
        if not row.strip() or re.match(r"\s*(\(|Note:|Synonym|see:|\")", row):
            continue
        if first or re.match(r"\s*\d+\.\s", row):
            first = False
            for text in (part.strip(" .-") for part in re.split(r"[,;،؛、]", _NOTE.sub(" ", row))):
                if text and len(text.split()) <= 4 and not re.search(r"[\d:/\"<>\[\](){}=|~*]", text):
                    yield text


def cldr(debian: Path) -> Iterator[Line]:
    """Yield Unicode CLDR's names and keywords of emoji, and its names of countries."""
    english = _cldr(debian, "en")
    for lang in LANGUAGES:
        for code, text in _cldr(debian, lang).items():
            if code in english and "skin tone" not in english[code]:
                yield Line(tidy(english[code]), lang, tidy(text), "cldr")


def _cldr(debian: Path, lang: str) -> dict[tuple[str, str | None], str]:
    found = {}
    for part, tag in (("annotations", "annotation"), ("annotationsDerived", "annotation"), ("main", "territory")):
        path = debian / f"usr/share/unicode/cldr/common/{part}/{lang}.xml"
        for node in ElementTree.parse(path).iter(tag) if path.exists() else ():
            if node.text and node.text != "↑↑↑" and not node.get("alt"):
                kind = "place" if tag == "territory" else node.get("type", "keywords")
                found[kind, node.get("cp") or node.get("type")] = node.text.replace(" | ", ", ")
    return found


def right_script(text: str, lang: str) -> bool:
    """Return whether all letters of a text are in the script of its language."""
    scripts = tuple(_SCRIPTS.get(lang, "LATIN").split())
    letters = [c for c in text if c.isalpha() and c not in "ー々"]
    return bool(letters) and all(unicodedata.name(c, "").startswith(scripts) for c in letters)


def variants(line: Line, wordnet: WordNet) -> Iterator[Line]:
    """Yield a line and, for Arabic and Hebrew, variants without vowel marks or, for Arabic things, with the article."""
    yield line
    if line.lang in ("ar", "he"):
        bare = re.sub(r"[\u0591-\u05c7\u064b-\u0652]", "", line.text)
        if bare != line.text:
            yield line._replace(text=bare)
        if line.lang == "ar" and " " not in bare and wordnet.is_thing(line.en):
            article = bare.startswith("ال") and len(bare) > 4
            yield line._replace(text=bare[2:] if article else "ال" + bare)


def chosen(lines: Iterable[Line], wordnet: WordNet, familiarity: Callable[[str], float]) -> list[Line]:
    """Return each pair once, without rare meanings: all words for things, and the most familiar other words."""
    found: dict[tuple[str, str, str], tuple[Line, int, int]] = {}
    votes, by_english, by_text = Counter[tuple[str, ...]](), Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for line in lines:
        votes[line[:3]] += 1
        if line[:3] not in found:
            by_english[line[:2]] += 1
            by_text[line[1:3]] += 1
            found[line[:3]] = line, by_english[line[:2]], by_text[line[1:3]]

    def is_rare(line: Line, of_english: int, of_text: int) -> bool:
        many_texts, many_english = by_english[line[:2]] > 8, by_text[line[1:3]] > 5
        return votes[line[:3]] < 2 and ((many_texts and of_english > 6) or (many_english and of_text > 3))

    kept = [(line, place) for line, place, other in found.values() if not is_rare(line, place, other)]
    kept.sort(key=lambda one: (votes[one[0][:3]] < 2, one[1] > 2, -familiarity(one[0].en)))
    counts = Counter[tuple[str, str]]()
    some = []
    for line, _ in kept:
        compound = " " in line.en and line.en not in wordnet
        kind = "compound" if compound else "thing" if wordnet.is_thing(line.en) else "other"
        counts[kind, line.lang] += 1
        if line.source == "cldr" or counts[kind, line.lang] <= _MOST.get(kind, len(kept)):
            some.append(line)
    return some
