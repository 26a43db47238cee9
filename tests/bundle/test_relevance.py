"""The relevance of a pair, and what a bundle says of it."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.bundle import Bundle
from sightline.bundle.layout import SPEC_FILE
from sightline.bundle.model import Calibration
from sightline.bundle.relevance_formula import FEATURES, PairRelevance, feature_rows, features
from sightline.bundle.spec import identity, write_spec
from sightline.bundle.words import Words, most_frequent
from sightline.errors import BundleError

FITTED = PairRelevance(
    {"cosine": 8.0, "cosine_length": 3.0, "length": -1.0, "familiarity": 2.0, "bias": -3.0}, line=0.4, data=("val",)
)
WORDS = Words(["a", "dog", "cat", "zebra"])


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def rewrite(folder: Path, **changes: Any) -> None:
    spec = json.loads((folder / SPEC_FILE).read_text())
    (folder / SPEC_FILE).write_text(json.dumps({**spec, **changes}))


def test_relevance_is_the_logistic_function_of_weighted_features() -> None:
    own = features("a zebra", WORDS)
    logit = 8 * 0.3 + 3 * 0.3 * own["length"] - own["length"] + 2 * own["familiarity"] - 3
    assert FITTED.of("a zebra", np.array([0.3]), WORDS)[0] == pytest.approx(1 / (1 + np.exp(-logit)))


def test_relevance_rises_with_the_cosine_and_is_finite_for_any() -> None:
    chances = FITTED.of("a dog", np.array([-1e9, -1.0, 0.0, 0.5, 1.0, 1e9]), WORDS)
    assert (np.diff(chances) >= 0).all()
    assert chances.min() >= 0
    assert chances.max() <= 1


@pytest.mark.parametrize(
    ("text", "length"), [("dog", 0.0), ("", 0.0), ("a b c d e f g h i j k l", 1.0), ("x " * 50, 1.0)]
)
def test_the_length_of_a_text_is_between_0_and_1(text: str, length: float) -> None:
    assert features(text, WORDS)["length"] == pytest.approx(length)


@pytest.mark.parametrize("text", ["a dog", "the dog", "a photo of a dog", "Picture of a dog"])
def test_articles_and_the_like_do_not_make_a_text_longer(text: str) -> None:
    assert features(text, WORDS)["length"] == features("dog", WORDS)["length"]
    assert features(f"{text} on a beach", WORDS)["length"] == features("dog beach", WORDS)["length"]


@pytest.mark.parametrize(
    ("text", "counts", "colours"),
    [("Two dogs", 1, 0), ("a grey cat", 0, 1), ("a gray cat", 0, 1), ("ten red kites", 1, 1), ("a tend redder", 0, 0)],
)
def test_a_text_with_a_number_or_a_colour_is_marked(text: str, counts: int, colours: int) -> None:
    found = features(text, WORDS)
    assert (found["counts"], found["colours"]) == (counts, colours)


@pytest.mark.parametrize(
    ("text", "numbers", "colours"),
    [("two dogs", 0.5, 0), ("a red car", 0, 0.5), ("two red cars in the snow", 0.25, 0.25), ("", 0, 0), ("dog", 0, 0)],
)
def test_numbers_and_colours_weigh_by_their_share_of_the_words(text: str, numbers: float, colours: float) -> None:
    found = features(text, WORDS)
    assert (found["number_share"], found["colour_share"]) == (numbers, colours)


def test_weights_of_older_features_still_count() -> None:
    old = PairRelevance({"cosine": 10.0, "counts": -2.0, "colours": -1.0, "bias": -5.0})
    found = [float(old.of(text, np.array([0.5]), WORDS)[0]) for text in ("dogs", "two dogs", "red dog")]
    assert found == pytest.approx([0.5, 1 / (1 + np.exp(2)), 1 / (1 + np.exp(1))])


def test_the_rows_of_a_fit_are_the_features_that_relevance_weighs() -> None:
    weights = {name: 0.1 * (place + 1) for place, name in enumerate(FEATURES)}
    text, cosines = "two red dogs and a zebra on a beach", np.array([0.2, 0.5])
    logits = feature_rows(text, cosines, WORDS) @ np.array(list(weights.values()))
    assert PairRelevance(weights).of(text, cosines, WORDS) == pytest.approx(1 / (1 + np.exp(-logits)))


def test_the_rarest_word_decides_how_familiar_a_text_is() -> None:
    found = [WORDS.familiarity(text) for text in ("a", "a dog", "a cat", "a zebra", "a lion", "123")]
    assert found[0] == 1
    assert found == sorted(found, reverse=True)
    assert found[-2:] == [0, 0]
    assert WORDS.familiarity("Zebras!") == WORDS.familiarity("zebra")
    assert Words().familiarity("a dog") == 0


def test_words_are_counted_once_a_caption() -> None:
    assert most_frequent(["dog dog dog", "a dog", "a cat"], least=2) == ["a", "dog"]


def test_a_bundle_keeps_its_relevance_and_words_and_its_identity(copy: Path) -> None:
    before = Bundle.open(copy)
    write_spec(copy, dataclasses.replace(before.spec, relevance=FITTED, words="a dog cat"))
    after = Bundle.open(copy)
    assert after.relevance == FITTED
    assert after.calibration == {}
    assert list(after.words) == ["a", "dog", "cat"]
    assert after.sha256 == before.sha256, "collections that it made stay searchable"
    assert identity(after.spec) == identity(before.spec)


def test_a_bundle_with_the_older_kind_of_relevance_opens_and_has_no_relevance_of_pairs(copy: Path) -> None:
    rewrite(copy, relevance={"embed": {"scale": 2.0, "bias": -1.0}})
    opened = Bundle.open(copy)
    assert opened.relevance is None
    assert opened.calibration == {"embed": Calibration(2.0, -1.0)}
    assert len(opened.words) == 0


@pytest.mark.parametrize(
    "relevance",
    [
        {"weights": {"cosine": 1.0, "phase_of_the_moon": 2.0}},
        {"weights": {"cosine": 1.0}, "line": 1.5},
        {"weights": {"cosine": float("inf")}},
        {"weights": "cosine"},
    ],
)
def test_a_relevance_that_cannot_be_computed_is_refused(copy: Path, relevance: dict[str, Any]) -> None:
    rewrite(copy, relevance=relevance)
    with pytest.raises(BundleError):
        Bundle.open(copy)


@pytest.mark.parametrize(
    ("weights", "line", "says"),
    [
        ({"phase_of_the_moon": 2.0}, 0.5, "unknown features phase_of_the_moon"),
        ({"cosine": 1.0}, 1.5, "`line` must be from 0 to 1, not 1.5"),
        ({"bias": 1.0, "cosine": float("inf")}, 0.5, "weights must be finite, but cosine is not"),
    ],
)
def test_an_invalid_relevance_is_refused_with_its_reason(weights: dict[str, float], line: float, says: str) -> None:
    with pytest.raises(BundleError, match=says):
        PairRelevance(weights, line)
