"""What is held out of the parallel text, for measurements: Tux Paint's stamps, nouns, and the captions of XTD10."""

import gzip
import hashlib
import json
import random
import re
import shutil
import subprocess
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from bundles.text import sources
from bundles.text.sources import LANGUAGES, Line, rows, tidy

STAMP_LANGUAGES = ("es", "it", "nl", "pl", "ru", "sv", "tr", "ja", "de", "fr", "cs", "pt", "zh", "ar")
_STAMPS, _SEED = 200, 20
_ARTICLES = re.compile(
    r"^(an?|the|to|some|der|die|das|eine?|une?|les?|la|l|el|los|las|una|il|lo|gli|uma?|os|as|een|het|en|ett|et|egy|az|bir)\s+"
)
_KANA = {code: code - 96 for code in range(0x30A1, 0x30F7)}  # katakana to hiragana


@cache
def form(text: str, lang: str = "en") -> str:
    """Return a text normalised for comparison: without case, accents, marks and articles, and with one kind of kana."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", text).translate(_KANA).casefold())
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    words = " ".join("".join(c if c.isalnum() else " " for c in plain).split())
    words = words.removeprefix("ال") if lang == "ar" else _ARTICLES.sub("", words)
    return words if lang == "en" else words.replace(" ", "")


@cache
def english_forms(text: str) -> frozenset[str]:
    """Return an English text, and the words that it may be the plural of."""
    plain = form(text)
    ends = (("ies", "y"), ("ves", "f"), ("es", ""), ("s", ""))
    return frozenset({plain, *(plain.removesuffix(end) + new for end, new in ends if plain.endswith(end))} - {""})


class HeldOut:
    """The held-out English texts, texts by language, and photos, none of which may occur in a line."""

    def __init__(self, images: Collection[str] = ()) -> None:
        self.english, self.images = set[str](), set(images)
        self._texts: dict[str, set[str]] = defaultdict(set)

    def add(self, en: str, texts: Mapping[str, Iterable[str]]) -> None:
        """Hold out an English text and its translations."""
        self.english |= english_forms(en)
        for lang, some in texts.items():
            self._texts[lang] |= {form(text, lang) for text in some} - {""}

    def has(self, line: Line) -> bool:
        """Return whether a line, or a word in a list of words, is held out."""
        if line.image in self.images:
            return True
        english, texts = ([text, *re.split(r"[,;|、،]", text)] for text in (line.en, line.text))
        held = self._texts[line.lang]
        return any(english_forms(en) & self.english for en in english) or any(form(t, line.lang) in held for t in texts)


def stamps(debian: Path) -> Iterator[tuple[str, Path | None, str, dict[str, list[str]]]]:
    """Yield every stamp of Tux Paint: its name, its image, its sentence in English and in other languages."""
    languages = {"zh_CN": "zh", "nb": "no", "pt_BR": "pt"}
    for path, english, others in sources.stamps(debian):
        texts: dict[str, list[str]] = defaultdict(list)
        for locale, text in others:
            lang = languages.get(locale, locale)
            if lang in LANGUAGES and text.strip() and tidy(text) not in texts[lang]:
                texts[lang].append(tidy(text))
        image = next((p for end in (".png", ".jpg", ".svg") if (p := path.with_suffix(end)).exists()), None)
        if english.strip():
            name = path.relative_to(debian / "usr/share/tuxpaint/stamps").with_suffix("")
            yield str(name), image, tidy(english), texts


def hold_stamps(debian: Path, out: Path, held: HeldOut) -> None:
    """Hold out 200 of the stamps that have a sentence in most languages, and write them with their images."""
    found: dict[str, tuple[int, str, Path, str, dict[str, list[str]]]] = {}
    for name, image, en, texts in stamps(debian):
        if image and len(en) <= 90:
            found.setdefault(form(en), (-sum(lang in texts for lang in STAMP_LANGUAGES), name, image, en, texts))
    chosen = sorted(found.values(), key=lambda one: one[:2])[: 2 * _STAMPS]
    random.Random(_SEED).shuffle(chosen)
    (out / "stamps").mkdir(exist_ok=True)
    lines = []
    for _, name, image, en, texts in chosen[:_STAMPS]:
        copy = out / "stamps" / f"{name.replace('/', '-')}{image.suffix if image.suffix != '.svg' else '.png'}"
        if image.suffix == ".svg":
            subprocess.run(["rsvg-convert", "-h", "320", "-a", image, "-o", copy], check=True)
        else:
            shutil.copy(image, copy)
        held.add(en, texts)
        first = {"en": en, **{lang: texts[lang][0] for lang in STAMP_LANGUAGES if lang in texts}}
        lines.append({"name": name, "picture": f"stamps/{copy.name}", "texts": first})
    _write(out / "held-stamps.jsonl.gz", lines)


def is_held_noun(english: str) -> bool:
    """Return whether a noun is in the tenth that is held out, by its hash."""
    return int(hashlib.sha256(english.encode()).hexdigest(), 16) % 10 == 0


def hold_nouns(lines: Iterable[Line], labels: Collection[str], out: Path, held: HeldOut) -> None:
    """Hold out a tenth of the nouns that are labels of images, with their dictionary translations.

    Translations found in more entries come first, because the first one in a dictionary may have another meaning.
    """
    votes: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for line in lines:
        noun = form(line.en)
        if noun in labels and is_held_noun(noun):
            votes[noun][line.lang][line.text] += 1
    texts = {
        noun: {lang: [text for text, _ in some.most_common()] for lang, some in by_language.items()}
        for noun, by_language in votes.items()
    }
    for noun, some in texts.items():
        held.add(noun, some)
    _write(out / "held-nouns.jsonl.gz", [{"en": noun, "texts": texts[noun]} for noun in sorted(texts)])


def hold_xtd10(github: Path, out: Path, held: HeldOut) -> None:
    """Hold out XTD10: 1,000 photos of COCO, each with a caption in several languages."""
    top = github / "xtd10"
    files = {lang: f"XTD10/test_1kcaptions_{lang}.txt" for lang in ("en", "es", "it", "ko", "pl", "ru", "tr", "zh")}
    files |= {
        "de": "MIC/test_1kcaptions_de.txt",
        "fr": "MIC/test_1kcaptions_fr.txt",
        "ja": "STAIR/test_1kcaptions_jp.txt",
    }
    captions = {lang: some for lang, name in files.items() if (some := rows(top / name))}
    lines = []
    for row, name in enumerate(rows(top / "XTD10/test_image_names.txt")):
        image = f"coco/{int(name.strip().split('_')[-1].removesuffix('.jpg'))}"
        texts = {lang: tidy(some[row]) for lang, some in captions.items()}
        held.images.add(image)
        held.add(texts["en"], {lang: [text] for lang, text in texts.items() if lang != "en"})
        lines.append({"image": image, "texts": texts})
    _write(out / "held-xtd10.jsonl.gz", lines)


def _write(path: Path, lines: Iterable[Mapping[str, object]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
