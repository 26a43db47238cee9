"""Measure how often the bundled model's search recognises the language of a query, and how long that takes.

    python -m benchmarks.languages.measure DATA DEBIAN

None of the texts used here were used to build the recognition table. They are queries.tsv, captions of Flickr8k's test
split, and a third of the stamps; see bundles/language_sources.py (of the packages, only tuxpaint-stamps-default is
needed).
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
from sightline.bundle import Model
from sightline.registry.loader import load
from sightline.retrieval.language import language_of

SEED = 5
QUERIES = Path(__file__).with_name("queries.tsv")
MEASURED = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "tr", "ru", "zh", "ja", "ar")
MISSPELT = ("en", "de", "pt", "fr", "cs")
PER_LANGUAGE = 70
PER_LENGTH, LENGTHS = 300, (1, 2, 3, 4)
LEAST_WORDS, MOST_WORDS, LEAST_LETTERS = 2, 8, 4  # some stamps are sums of money
ENGLISH_SHORT = 300
LEAST_MISSPELT = 5  # letters; shorter words are not corrected as easily
_START_UP = """
import time
from sightline.registry.loader import load
from sightline.retrieval.language import language_of
model = load("default")
began = time.perf_counter()
language_of({text!r}, model)
print(1000 * (time.perf_counter() - began))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("debian", type=Path)
    given = parser.parse_args()
    rng, model = random.Random(SEED), load("default")
    captions = list(sources.captions(given.data, "flickr8k-test.tar"))
    sets = {
        "queries": list(written()),
        "captions": pieces(captions, rng),
        "stamps": pieces(sources.stamps(given.debian, test=True), rng),
    }
    own = {lang: [text for other, text in captions if other == lang] for lang in MISSPELT}
    short = english_short(given.data, own["en"], rng)
    found = {
        **provenance(SEED, ["benchmarks/languages/queries.tsv", "flickr8k-test", "names-val", "tuxpaint-stamps"]),
        "languages": list(MEASURED),
        "languages_of_model": len(model.languages),
        "right": {name: table(some, model) for name, some in sets.items()},
        "english_captions_stay_english": stays(own["en"], model),
        "english_short_stay_english": stays(short, model),
        "misspelt": [
            {"lang": lang, "words": count, **share(misspelt(own[lang], count, rng), lang, model)}
            for lang in MISSPELT
            for count in LENGTHS
        ],
        "milliseconds": milliseconds(sets["queries"], model),
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


def misspelt(captions: Sequence[str], count: int, rng: random.Random) -> list[tuple[str, str]]:
    """Cut captions to some words, and misspell the longest one; returns pieces before and after."""
    found = []
    for caption in rng.sample(captions, len(captions)):
        words = caption.rstrip(" .").split()
        if len(words) < count:
            continue
        start = rng.randrange(len(words) - count + 1)
        piece = words[start : start + count]
        longest = max(range(count), key=lambda place: len(piece[place]))
        if len(piece[longest]) >= LEAST_MISSPELT and piece[longest].isalpha():
            wrong = [*piece[:longest], typo(piece[longest], rng), *piece[longest + 1 :]]
            found.append((" ".join(piece), " ".join(wrong)))
        if len(found) == PER_LENGTH:
            break
    return found


def typo(word: str, rng: random.Random) -> str:
    """Leave out a letter of a word, double one, swap two neighbours, or replace one; the first letter stays."""
    place = rng.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    other = rng.choice("abcdefghijklmnopqrstuvwxyz".replace(letter, ""))
    wrong = [
        before + after,
        before + 2 * letter + after,
        before + after[0] + letter + after[1:],
        before + other + after,
    ]
    return rng.choice([one for one in wrong if one != word])


def table(queries: Sequence[tuple[str, str]], model: Model) -> dict[str, object]:
    """Return the percentage of queries recognised correctly, overall and by language."""
    by_language: dict[str, list[bool]] = defaultdict(list)
    for lang, text in queries:
        by_language[lang].append(language_of(text, model) == lang)
    every = [is_right for some in by_language.values() for is_right in some]
    return {
        "queries": len(queries),
        "percent": round(100 * mean(every), 2),
        "by_language": {lang: round(100 * mean(some), 1) for lang, some in sorted(by_language.items())},
    }


def share(pieces: Sequence[tuple[str, str]], lang: str, model: Model) -> dict[str, float]:
    """Return the percentage of texts recognised correctly, before and after misspelling."""
    before, after = (mean(language_of(text, model) == lang for text in texts) for texts in zip(*pieces, strict=True))
    return {"texts": len(pieces), "percent": round(100 * after, 1), "percent_as_written": round(100 * before, 1)}


def stays(texts: Sequence[str], model: Model) -> dict[str, object]:
    """Count the English texts recognised as English; also returns some that are not."""
    lost = [text for text in texts if language_of(text, model) != "en"]
    return {"texts": len(texts), "percent": round(100 * (1 - len(lost) / len(texts)), 2), "lost": lost[:20]}


def milliseconds(queries: Sequence[tuple[str, str]], model: Model) -> dict[str, float]:
    """Measure the time for the first query of a new process, and for later queries."""
    began = time.perf_counter()
    for _, text in queries:
        language_of(text, model)
    warm = 1000 * (time.perf_counter() - began) / len(queries)
    code = _START_UP.format(text="ein Hund am Strand")
    runs = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return {"per_query": round(warm, 3), "first_query": round(sorted(runs)[2], 2)}


if __name__ == "__main__":
    main()
