"""The relevance of a pair: the probability that an image shows what a text asks for, regardless of other items."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sightline.arrays import Float64Array, FloatArray
from sightline.bundle.words import COLOURS, FUNCTION_WORDS, NUMBERS, Words
from sightline.errors import BundleError

BIAS = "bias"
TEXT_FEATURES = (
    *("length", "length2", "familiarity", "familiarity_length", "familiarity_length2"),
    *("number_share", "colour_share"),
)
OLD_FEATURES = ("counts", "colours")
"""Further features of a text that only older bundles have weights for."""

COSINE_FEATURES = {"cosine": None, "cosine_length": "length", "cosine_length2": "length2"}
"""The cosine by itself, and times a feature of the text."""

FEATURES = (*COSINE_FEATURES, *TEXT_FEATURES)
"""The features of a pair. The weights of the cosine and of familiarity, and the bias, are quadratic in the length: a
word, a phrase and a sentence each need their own."""

_NUMBERS, _COLOURS = frozenset(NUMBERS), frozenset((*COLOURS, "gray"))
_LONGEST = 8  # words; beyond this, the length feature does not grow


@dataclass(frozen=True, slots=True)
class PairRelevance:
    """relevance = sigmoid(sum of weight x feature + bias), fitted on held-out pairs of texts and images.

    weights: the weight of each feature by its name (see `features`), and "bias".
    line: the minimum relevance for a result to count as a match, unless the user sets another one.
    data: the names of the data it was fitted on.
    error: by kind of query, the calibration error among the top ten, 0 to 1, on data that was not used for fitting.
    """

    weights: Mapping[str, float]
    line: float = 0.5
    data: tuple[str, ...] = ()
    error: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.weights) - {BIAS, *FEATURES, *OLD_FEATURES})
        if unknown:
            raise BundleError(f"relevance: unknown features {', '.join(unknown)}", "Update Sightline.")
        broken = next((name for name, weight in self.weights.items() if not math.isfinite(weight)), None)
        if broken is not None:
            raise BundleError(f"relevance: weights must be finite, but {broken} is not", "Export the model again.")
        if not 0 <= self.line <= 1:
            raise BundleError(f"relevance: `line` must be from 0 to 1, not {self.line}", "Export the model again.")

    def of(self, text: str, cosines: FloatArray, words: Words) -> Float64Array:
        """Return the relevance of images with these cosines to a text; words: those that the model was trained on.

        >>> fitted = PairRelevance({"cosine": 10.0, "bias": -5.0})
        >>> fitted.of("a dog", np.array([0.5]), Words()).tolist()
        [0.5]
        """
        weight, own = self.weights.get, features(text, words)
        slope = sum(weight(name, 0.0) * _factor(own, factor) for name, factor in COSINE_FEATURES.items())
        rest = sum((weight(name, 0.0) * value for name, value in own.items()), weight(BIAS, 0.0))
        total = slope * np.asarray(cosines, dtype=np.float64) + rest
        return np.asarray(1 / (1 + np.exp(-np.clip(total, -500, 500))), dtype=np.float64)


def feature_rows(text: str, cosines: FloatArray, words: Words) -> Float64Array:
    """Return the features [n, features] of a text and images with these cosines [n], in the order of FEATURES."""
    own, cosine = features(text, words), np.asarray(cosines, dtype=np.float64)
    columns = [cosine * _factor(own, factor) for factor in COSINE_FEATURES.values()]
    return np.stack([*columns, *(np.full(len(cosine), own[name]) for name in TEXT_FEATURES)], axis=1)


def features(text: str, words: Words) -> dict[str, float]:
    """Return the TEXT_FEATURES and OLD_FEATURES of a text, by name.

    length: from 0 for one word to 1 for eight or more, on a logarithmic scale. Articles, prepositions and the like, and
        the words photo, picture and image, do not count: "dog" and "a photo of a dog" are equally long.
    familiarity: the familiarity of its least frequent word, 0 to 1. A model is overconfident about words it has rarely
        seen.
    length2, familiarity_length, familiarity_length2: the square of the length, and familiarity times both.
    number_share, colour_share: the share of number words, and of colours, among the words that count, 0 to 1. A model
        easily finds three dogs for "two dogs", and a yellow coat for "yellow dog".
    counts, colours: 1 if the text has a number word, or a colour, else 0.
    """
    found = re.findall(r"\w+", text.lower())
    counted = [word for word in found if word not in FUNCTION_WORDS]
    count = max(1, len(counted))
    length, familiarity = math.log(min(count, _LONGEST)) / math.log(_LONGEST), words.familiarity(text)
    square = length * length
    return {
        "length": length,
        "length2": square,
        "familiarity": familiarity,
        "familiarity_length": familiarity * length,
        "familiarity_length2": familiarity * square,
        "number_share": sum(word in _NUMBERS for word in counted) / count,
        "colour_share": sum(word in _COLOURS for word in counted) / count,
        "counts": float(not _NUMBERS.isdisjoint(found)),
        "colours": float(not _COLOURS.isdisjoint(found)),
    }


def _factor(own: Mapping[str, float], name: str | None) -> float:
    return 1.0 if name is None else own[name]
