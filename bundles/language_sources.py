"""Texts for learning to recognise languages: captions, and the contents of Debian packages in many languages.

The packages, unpacked into one folder with `dpkg-deb -x`: tuxpaint-stamps-default, debian-handbook, manpages-*,
dict-freedict-*, hunspell-*.
"""

import gzip
import html
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from bundles.text import sources

LANGUAGES = (
    *("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sk", "sv", "da", "no", "fi", "hu", "ro", "hr", "tr"),
    *("id", "vi", "ca", "ru", "uk", "bg", "ar", "fa", "zh", "ja"),
)
"""The languages that share a script with others; the rest, such as Greek, have a script of their own."""

_THREE_LETTERS = {**sources.THREE_LETTERS, "bul": "bg", "hrv": "hr"}
_GLOSSED = ("bul", "fin", "ind", "jpn", "nor", "pol")  # dictionaries with explanations in English
_OTHER_CODES = {"nb": "no", "nn": "no"}
_TAG = re.compile(r"<(script|style|pre|code|tt)\b.*?</\1>|<[^>]+>", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?:;()\[\]{}|/\\<>\n。！？：；（）、，]+")
_ENGLISH = re.compile(r"\b(the|of|is|are|and|with|this|that|for|from|by|which|you|to|it|be|an|used)\b", re.IGNORECASE)
_IS_TEST = 3  # every third stamp is for testing


def captions(data: Path, *shards: str) -> Iterator[tuple[str, str]]:
    """Yield the captions in shards, each with its language."""
    for pattern in shards:
        for _, facts in sources.records(data, pattern):
            for lang, texts in facts["captions"].items():
                yield from ((lang, text) for text in texts)


def stamps(debian: Path, test: bool) -> Iterator[tuple[str, str]]:
    """Return descriptions of the stamps of a children's paint program, in many languages; a third are for testing."""
    for path, english, others in sources.stamps(debian):
        if (zlib.crc32(path.stem.encode()) % _IS_TEST == 0) == test:
            yield "en", english
            yield from ((_language(locale), text) for locale, text in others)


def prose(debian: Path) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a handbook and of manual pages."""
    for path in sorted((debian / "usr/share/doc/debian-handbook/html").glob("*/*.html")):
        lang = _language(path.parent.name)
        plain = html.unescape(_TAG.sub(" ", path.read_text(encoding="utf-8", errors="replace")))
        yield from ((lang, text) for text in _sentences(plain) if lang == "en" or len(_ENGLISH.findall(text)) < 2)
    for path in sorted((debian / "usr/share/man").glob("*/man*/*.gz")):
        lang = _language(path.parts[-3])
        lines = gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines()
        plain = " ".join(re.sub(r"\\[-&efs|]\S?|\\f.", "", line) for line in lines if line[:1] not in (".", "'"))
        yield from ((lang, text) for text in _sentences(plain))


def dictionaries(debian: Path) -> Iterator[tuple[str, str]]:
    """Yield the words of bilingual dictionaries, and those of spelling checkers."""
    for source, target, path in sources.freedict(debian):
        words = [row.split("\t")[0] for row in sources.rows(path)]
        lang = "en" if source == "eng" else _THREE_LETTERS.get(source, source)
        yield from ((lang, word) for word in words if word and not word.startswith("00database"))
        if source == "eng" and target in _THREE_LETTERS and target not in _GLOSSED:
            with gzip.open(path.with_suffix(".dict.dz"), "rt", encoding="utf-8", errors="replace") as file:
                for line in file:
                    text = re.sub(r"^\d+\. ", "", line.strip())
                    if len(text) < 60 and not re.search(r"[/<>\[\]()\"0-9]", text):
                        yield from ((_THREE_LETTERS[target], one) for one in text.split(", "))
    for path in sorted((debian / "usr/share/hunspell").glob("*.dic")):
        if not path.is_symlink():
            lang = _language(path.stem)
            aff = path.with_suffix(".aff").read_text(encoding="latin-1")
            encoding = (re.search(r"^SET\s+(\S+)", aff, re.MULTILINE) or ["", "latin-1"])[1]
            encoding = {"microsoft-cp1251": "cp1251"}.get(encoding, encoding)
            lines = path.read_text(encoding=encoding, errors="replace").splitlines()[1:]
            yield from ((lang, line.partition("/")[0].strip()) for line in lines)


def _language(code: str) -> str:
    short = re.split(r"[_@-]", code)[0].lower()
    return _OTHER_CODES.get(short, short)


def _sentences(text: str) -> Iterator[str]:
    for found in _SENTENCE.findall(" ".join(text.split())):
        if 8 < len(found.strip()) < 400:
            yield found.strip()
