"""Measure how often the language of a query is recognised, and how long that takes.

    python -m benchmarks.languages.measure DATA DEBIAN

None of the texts used here were used to build the recognition table. They are queries.tsv, captions of Flickr8k's test
split, and a third of the stamps; see bundles/language_sources.py.
"""

import argparse
import csv
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.provenance import RESULTS, provenance, write_result
from bundles import language_sources as sources
from sightline.bundle.words import Words, words_in
from sightline.languages.recognise import recognise
from sightline.registry.installed import InstalledModel
from sightline.registry.loader import locate

SEED = 5
QUERIES = Path(__file__).with_name("queries.tsv")
MEASURED = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "tr", "ru", "zh", "ja", "ar")
EVERY = (*sources.LANGUAGES, "el", "he", "hi", "ko", "th")
PER_LANGUAGE = 70
LEAST_WORDS, MOST_WORDS, LEAST_LETTERS = 2, 8, 4  # some stamps are sums of money
ENGLISH_SHORT = 300
_START_UP = """
import time
from sightline.languages import recognise
began = time.perf_counter()
recognise.recognise({text!r}, {languages!r}, lambda text: False)
print(1000 * (time.perf_counter() - began))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("debian", type=Path)
    given = parser.parse_args()
    rng = random.Random(SEED)
    words = Words(InstalledModel.read("default", locate("default")).spec.words.split())
    english = list(sources.captions(given.data, "flickr8k-test.tar"))
    sets = {
        "queries": list(written()),
        "captions": pieces(english, rng),
        "stamps": pieces(sources.stamps(given.debian, test=True), rng),
    }
    own = [text for lang, text in english if lang == "en"]
    short = english_short(given.data, own, rng)
    among_all = {name: table(some, words, EVERY)["percent"] for name, some in sets.items()}
    found = {
        **provenance(SEED, ["benchmarks/languages/queries.tsv", "flickr8k-test", "names-val", "tuxpaint-stamps"]),
        "languages": list(MEASURED),
        "right": {name: table(some, words) for name, some in sets.items()},
        "percent_among_all": {"languages": len(EVERY), **among_all},
        "english_captions_stay_english": stays(own, words),
        "english_short_stay_english": stays(short, words),
        "milliseconds": milliseconds(sets["queries"], words),
    }
    found["command"] = "python -m benchmarks.languages.measure DATA DEBIAN"
    write_result(RESULTS / "languages.json", found)


def written() -> Iterator[tuple[str, str]]:
    """Return the queries of queries.tsv, which are the same in every language."""
    with QUERIES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            yield from row.items()


def pieces(texts: Sequence[tuple[str, str]] | Iterator[tuple[str, str]], rng: random.Random) -> list[tuple[str, str]]:
    """Return some texts in each language, cut to two to eight words from a random position."""
    by_language: dict[str, list[str]] = defaultdict(list)
    for lang, text in texts:
        if lang in MEASURED:
            by_language[lang].append(text)
    found = []
    for lang, some in sorted(by_language.items()):
        cut = [piece for text in rng.sample(some, len(some)) if (piece := _cut(text, rng))]
        found += [(lang, piece) for piece in cut[:PER_LANGUAGE]]
    return found


def _cut(text: str, rng: random.Random) -> str | None:
    words = text.rstrip(" .。").split()
    if sum(map(str.isalpha, text)) < LEAST_LETTERS:
        return None
    if any("぀" <= letter <= "鿿" for letter in text):
        return text[: rng.randrange(4, 13)] if len(text) >= 4 else None
    if len(words) < LEAST_WORDS:
        return None
    count = rng.randint(LEAST_WORDS, min(MOST_WORDS, len(words)))
    start = rng.randrange(len(words) - count + 1)
    return " ".join(words[start : start + count])


def english_short(data: Path, captions: Sequence[str], rng: random.Random) -> list[str]:
    """Return English queries of one or two words: half are names of things, and half are cut from captions."""
    names = sorted({text for _, text in sources.captions(data, "names-val.tar") if len(text.split()) <= 2})
    cut = []
    for caption in rng.sample(captions, ENGLISH_SHORT):
        own = [word for word in caption.split() if word.isalpha() and len(word) > 3]
        if own:
            start = rng.randrange(len(own))
            cut.append(" ".join(own[start : start + rng.randint(1, 2)]))
    half = ENGLISH_SHORT // 2
    return [*rng.sample(names, half), *cut[:half]]


def answer(text: str, words: Words, languages: Sequence[str] = MEASURED) -> str:
    return recognise(text, languages, lambda text: all(word in words for word in words_in(text)))


def table(queries: Sequence[tuple[str, str]], words: Words, languages: Sequence[str] = MEASURED) -> dict[str, object]:
    """Return the percentage of queries recognised correctly among some languages, overall and by language."""
    by_language: dict[str, list[bool]] = defaultdict(list)
    for lang, text in queries:
        by_language[lang].append(answer(text, words, languages) == lang)
    every = [is_right for some in by_language.values() for is_right in some]
    return {
        "queries": len(queries),
        "percent": round(100 * mean(every), 2),
        "by_language": {lang: round(100 * mean(some), 1) for lang, some in sorted(by_language.items())},
    }


def stays(texts: Sequence[str], words: Words) -> dict[str, object]:
    """Count the English texts recognised as English among all languages; also returns some that are not."""
    lost = [text for text in texts if answer(text, words, EVERY) != "en"]
    return {"texts": len(texts), "percent": round(100 * (1 - len(lost) / len(texts)), 2), "lost": lost[:20]}


def milliseconds(queries: Sequence[tuple[str, str]], words: Words) -> dict[str, float]:
    """Measure the time for the first query of a new process, and for later queries."""
    began = time.perf_counter()
    for _, text in queries:
        answer(text, words)
    warm = 1000 * (time.perf_counter() - began) / len(queries)
    code = _START_UP.format(text="ein Hund am Strand", languages=list(MEASURED))
    runs = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return {"per_query": round(warm, 3), "first_query": round(sorted(runs)[2], 2)}


if __name__ == "__main__":
    main()
