"""Queries with their ground truth: whether each image shows what is asked for, does not show it, or may show it.

Truth comes from captions and labels. People do not mention every chair, so one word of one caption proves little:

- a noun is shown if at least two captions of an image say so, and not shown if no caption says so or leaves it open;
- a phrase (`brown dog`) is shown if two captions say so, and not shown if the noun is not shown, or has another colour;
  `two dogs` is not shown if two captions say another number, or if two say one dog and none leaves the number open;
- a scene (`a dog on a beach`) is shown by the image whose caption has these words, and by others that show both nouns;
  not by images that do not show one of the nouns;
- a sentence is shown by the image that it was written for, and not by images with several captions that share few of
  its words or of their synonyms (`bike` for `cyclist`);
- a name is shown by the images that are labelled with it. It is not shown by images with another label, or by images
  whose captions contain no word of the name, no wider term for it, and no place where such things are seldom mentioned.

Everything else is unknown and left out.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import chain, islice, pairwise
from typing import Any, Literal

import numpy as np

from sightline.arrays import BoolArray, Int8Array, Int64Array
from sightline.bundle.words import COLOURS, FUNCTION_WORDS, NUMBERS
from sightline.datasets import Record

QueryKind = Literal["noun", "phrase", "sentence", "name"]
UNKNOWN, NOT_SHOWN, SHOWN = -1, 0, 1

_COUNTS = NUMBERS[:3]
_ADJECTIVES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "colour": {one: tuple(other for other in (*COLOURS, "gray") if other != one) for one in COLOURS},
    "number": {one: tuple(other for other in _COUNTS if other != one) for one in _COUNTS},
    "age": {"young": ("old", "older", "elderly"), "old": ("young", "little")},
}
"""Adjectives by kind, each with the adjectives that rule it out."""
_ONE = ("one", "a", "an", "lone", "single")
_SAME = {"two": ("couple of", "pair of"), "grey": ("gray",)}
"""Further words for an adjective."""
_SEVERAL = (
    *("another", "both", "bunch", "couple", "crowd", "family", "few", "flock", "group", "herd", "line", "lots", "many"),
    *("multiple", "other", "others", "pair", "row", "several", "some", "team", "various"),
)
"""Words of a caption that leave open how many there are."""
_IRREGULAR = frozenset(("men", "women", "gentlemen", "geese", "cattle", "children", "people"))
_ENOUGH = 3  # captions needed for what none of them mentions to count as not shown
_SHARED = 0.5  # share of a sentence's words: an image whose captions have that many may show it too
_BETWEEN = 4  # words between two nouns of a scene
_PART = 3  # letters in a part of a compound
_NEAR = 3  # words between an adjective and its noun, as in "brown and white dog"


@dataclass(frozen=True, slots=True)
class TruthQuery:
    """A query, and for each image [images] whether it shows what is asked for: SHOWN, NOT_SHOWN or UNKNOWN."""

    text: str
    kind: QueryKind
    truth: Int8Array


class Captions:
    """The captions of images, searchable by word."""

    def __init__(self, records: Sequence[Record], lang: str = "en") -> None:
        self.images = len(records)
        texts = [[_plain(text) for text in record.captions.get(lang, ())] for record in records]
        self.count = np.array([len(own) for own in texts], dtype=np.int64)
        self.described = (self.count >= _ENOUGH) & np.array(
            [record.label is None for record in records], dtype=np.bool_
        )
        """Which images [images] have enough captions to conclude something from what none of them mentions."""
        self._texts = [text for own in texts for text in own]
        self._image = np.repeat(np.arange(self.images), self.count)
        self._with: dict[str, list[int]] = defaultdict(list)
        self._with_stem: dict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(self._texts):
            for word in set(text.split()):
                self._with[word].append(number)
            for stem in {_stem(word) for word in text.split()}:
                self._with_stem[stem].append(number)

    def in_random_order(self, seed: int) -> Iterator[tuple[int, str]]:
        """Yield every caption, with the index of its image."""
        for number in np.random.default_rng(seed).permutation(len(self._texts)):
            yield int(self._image[number]), self._texts[number]

    def mentions(self, terms: Iterable[str]) -> Int64Array:
        """Return how many captions of each image [images] contain one of these words or phrases."""
        found = {number for term in terms for number in self._having(term)}
        return self._per_image(found)

    def together(self, adjectives: Iterable[str], nouns: Iterable[str]) -> Int64Array:
        """Return how many captions of each image have one of the adjectives shortly before one of the nouns.

        "a white plate of pizza" does not say that a pizza is white, nor "a herd of sheep" that there is only one sheep.
        """
        either = "|".join(map(re.escape, adjectives))
        found = set()
        for noun in nouns:
            if having := self._having(noun):
                near = re.compile(rf"\b(?:{either})(?: (?!of\b)\w+){{0,{_NEAR - 1}}} {re.escape(noun)}\b")
                found |= {n for n in having if near.search(self._texts[n])}
        return self._per_image(found)

    def has(self, word: str) -> bool:
        """Return whether any caption has this word."""
        return word in self._with

    def shared(self, words: Sequence[str], *, synonyms: bool = False) -> Int64Array:
        """Return how many of these words, or words that may mean the same, occur in the captions of each image."""
        total = np.zeros(self.images, dtype=np.int64)
        for stem in {_stem(word) for word in words}:
            stems = _synonyms().get(stem, ()) if synonyms else ()
            total += self._per_image({n for one in {stem, *stems} for n in self._with_stem.get(one, ())}) > 0
        return total

    def _having(self, term: str) -> list[int]:
        if " " not in term:
            return self._with.get(term, [])
        within = set.intersection(*(set(self._with.get(word, ())) for word in term.split()))
        return [number for number in within if f" {term} " in f" {self._texts[number]} "]

    def _per_image(self, numbers: Iterable[int]) -> Int64Array:
        return np.bincount(self._image[np.fromiter(numbers, np.int64)], minlength=self.images)


@dataclass(frozen=True)
class Noun:
    """A noun, and the words in captions that imply it, leave it open, or mean something else."""

    text: str
    shows: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    plural: str = ""
    adjectives: tuple[str, ...] = ()

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """Every word or phrase that implies the noun."""
        return (self.text, self.many, *self.shows)

    @property
    def many(self) -> str:
        """The plural of the noun."""
        return self.plural or f"{self.text}s"

    @cached_property
    def plurals(self) -> tuple[str, ...]:
        """The terms that always mean more than one."""
        regular = {f"{term}{end}" for term in self.terms for end in ("s", "es")}
        regular |= {f"{term.removesuffix('y')}ies" for term in self.terms}
        return tuple(term for term in self.terms if term != self.text and (term in regular or term in _IRREGULAR))

    def truth(self, captions: Captions) -> Int8Array:
        """Return whether each image [images] shows the noun."""
        said, open_ = captions.mentions(self.terms), captions.mentions((*self.unsure, *self.other))
        truth = np.full(captions.images, UNKNOWN, dtype=np.int8)
        truth[(said == 0) & (open_ == 0) & captions.described] = NOT_SHOWN
        truth[said >= np.minimum(2, captions.count.clip(min=1))] = SHOWN
        truth[captions.mentions(self.other) > 0] = UNKNOWN
        return truth


@cache
def nouns() -> tuple[Noun, ...]:
    """Return the nouns in nouns.toml, which are asked for by default."""
    return nouns_from(_read("nouns.toml"))


def nouns_from(table: Mapping[str, Mapping[str, Any]]) -> tuple[Noun, ...]:
    """Return the nouns in a table with the same structure as nouns.toml."""
    return tuple(_noun(text, words) for text, words in table.items())


def _noun(text: str, words: Mapping[str, Any]) -> Noun:
    shows, unsure, other, adjectives = (tuple(words.get(part, ())) for part in ("shows", "unsure", "other", "with"))
    return Noun(text, shows, unsure, other, words.get("plural", ""), adjectives)


def noun_queries(captions: Captions, asked: Sequence[Noun] | None = None) -> Iterator[TruthQuery]:
    """Yield a query for every noun, whether or not an image shows it."""
    for noun in asked or nouns():
        yield TruthQuery(noun.text, "noun", noun.truth(captions))


def phrase_queries(captions: Captions, asked: Sequence[Noun] | None = None) -> Iterator[TruthQuery]:
    """Yield a query for every adjective and noun that at least one image shows together."""
    for noun in asked or nouns():
        shown = noun.truth(captions)
        for kind in noun.adjectives:
            for adjective, opposites in _ADJECTIVES[kind].items():
                truth = np.full(captions.images, UNKNOWN, dtype=np.int8)
                truth[shown == NOT_SHOWN] = NOT_SHOWN
                other = captions.together(opposites, noun.terms) >= 2
                if kind == "number":
                    other |= _only_one(captions, noun)
                same = (adjective, *_SAME.get(adjective, ()))
                truth[(shown == SHOWN) & (captions.mentions(same) == 0) & other] = NOT_SHOWN
                said = captions.together(same, noun.terms)
                truth[said >= np.minimum(2, captions.count.clip(min=1))] = SHOWN
                if (truth == SHOWN).any():
                    yield TruthQuery(f"{adjective} {noun.many if kind == 'number' else noun.text}", "phrase", truth)


def _only_one(captions: Captions, noun: Noun) -> BoolArray:
    """Return which images [images] show exactly one instance of a noun: two captions say so, and none hints at more."""
    singular = [term for term in noun.terms if term not in noun.plurals]
    open_ = captions.mentions((*noun.plurals, *_SEVERAL, *NUMBERS))
    found: BoolArray = (captions.together(_ONE, singular) >= 2) & (open_ == 0)
    return found


def scene_queries(captions: Captions, seed: int, asked: Sequence[Noun] | None = None) -> Iterator[TruthQuery]:
    """Yield parts of captions from one noun to the next, such as `a dog running on the beach`, in random order."""
    by_term = {term: noun for noun in asked or nouns() for term in noun.terms}
    longest_first = sorted(by_term, key=len, reverse=True)
    term = re.compile(rf"\b(?:(?:a|an|the) )?({'|'.join(map(re.escape, longest_first))})\b")
    shown: dict[str, Int8Array] = {}
    found_before = set()
    for image, text in captions.in_random_order(seed):
        places = list(term.finditer(text))
        for first, second in pairwise(places):
            found, both = text[first.start() : second.end()], [by_term[one[1]] for one in (first, second)]
            between = len(text[first.end() : second.start()].split())
            if both[0] == both[1] or not 1 <= between <= _BETWEEN or found in found_before:
                continue
            found_before.add(found)
            one, other = (shown.setdefault(noun.text, noun.truth(captions)) for noun in both)
            truth = np.full(captions.images, UNKNOWN, dtype=np.int8)
            truth[(one == SHOWN) & (other == SHOWN)] = SHOWN
            truth[(one == NOT_SHOWN) | (other == NOT_SHOWN)] = NOT_SHOWN
            truth[image] = SHOWN
            yield TruthQuery(found, "phrase", truth)


def sentence_queries(
    records: Sequence[Record], captions: Captions, seed: int, lang: str = "en", asked: int | None = None
) -> Iterator[TruthQuery]:
    """Yield one caption of every image, or of the first `asked` images, as a query, in random order.

    Images with few captions are judged only if all images have few.
    """
    rng = np.random.default_rng(seed)
    judged = captions.described if captions.described.any() else captions.count > 0
    for image in rng.permutation(len(records) if asked is None else asked):
        own = records[image].captions.get(lang, ())
        if not own or records[image].label is not None:
            continue
        text = own[rng.integers(len(own))].strip()
        words = [word for word in dict.fromkeys(_plain(text).split()) if word not in FUNCTION_WORDS]
        if len(words) < 2:
            continue
        truth = np.full(captions.images, UNKNOWN, dtype=np.int8)
        truth[judged & (captions.shared(words, synonyms=True) < _SHARED * len(words))] = NOT_SHOWN
        truth[judged & (captions.shared(words) == len(words))] = SHOWN
        truth[image] = SHOWN
        yield TruthQuery(text, "sentence", truth)


def name_queries(records: Sequence[Record], captions: Captions) -> Iterator[TruthQuery]:
    """Yield a query for every label that can be distinguished from the labels and captions of the other images."""
    vague = frozenset(_read("names.toml")["vague"])
    labels = [record.label for record in records]
    for name in dict.fromkeys(label for label in labels if label is not None and label not in vague):
        own = frozenset(_plain(name).split())
        truth = np.full(captions.images, UNKNOWN, dtype=np.int8)
        hinted = captions.shared([*own, *_heads(own, captions)]) + captions.mentions(_wider(own))
        truth[captions.described & (hinted == 0)] = NOT_SHOWN
        for image, label in enumerate(labels):
            if label is not None:
                words = frozenset(_plain(label).split())
                apart = label not in vague and not own <= words and not words <= own
                truth[image] = SHOWN if label == name else NOT_SHOWN if apart else UNKNOWN
        yield TruthQuery(name, "name", truth)


def truth_queries(
    records: Sequence[Record],
    *,
    sentences: int = 500,
    scenes: int = 300,
    seed: int = 0,
    lang: str = "en",
    asked: int | None = None,
    nouns: Sequence[Noun] | None = None,
) -> list[TruthQuery]:
    """Return queries of every kind that the records allow, each with at least one image whose truth is known.

    sentences, scenes: the largest number of captions, and of parts of captions, to use as queries. asked: use captions
        only of the first `asked` records. nouns: the nouns to ask for; by default those of nouns.toml.
    """
    captions = Captions(records, lang)
    phrases = [*phrase_queries(captions, nouns), *islice(scene_queries(captions, seed, nouns), scenes)]
    some = islice(sentence_queries(records, captions, seed, lang, asked), sentences)
    found = [*noun_queries(captions, nouns), *phrases, *some, *name_queries(records, captions)]
    return [query for query in found if (query.truth != UNKNOWN).any()]


def _wider(words: frozenset[str]) -> list[str]:
    """Return the words of captions that leave it open whether an image shows a name with these words.

    They are more general (`dog` for a terrier), or name places where it is seldom mentioned (`kitchen` for a toaster).
    """
    table = _read("names.toml")
    wider = [noun for noun in nouns() if words & set(table["kinds"].get(noun.text, ()))]
    places = [one["words"] for one in table["unmentioned"].values() if words & set(one["names"])]
    return [*(term for noun in wider for term in (*noun.terms, *noun.unsure)), *chain.from_iterable(places)]


def _heads(words: frozenset[str], captions: Captions) -> list[str]:
    """Return the last part of a compound, if captions contain both parts as words: `tub` in `bathtub`."""
    parts = [(word[:cut], word[cut:]) for word in words for cut in range(_PART, len(word) - _PART + 1)]
    return [last for first, last in parts if captions.has(first) and captions.has(last)]


def _plain(text: str) -> str:
    """Convert to lower case, with one space between words."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def _stem(word: str) -> str:
    """Return a word without a common ending: `runs` and `running` are both `run`."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            short = word.removesuffix(ending)
            return short[:-1] if short[-1] == short[-2] else short.removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


@cache
def _synonyms() -> Mapping[str, frozenset[str]]:
    """Return, for each stem, the stems of words that may mean the same."""
    groups = [frozenset(map(_stem, group.split())) for group in _read("synonyms.toml")["groups"]]
    return {stem: frozenset().union(*(group for group in groups if stem in group)) for stem in set().union(*groups)}


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("sightline.onnx_export").joinpath(name).read_text(encoding="utf-8"))
