"""An add-on brings another text graph for other languages into the space of a bundle, and leaves the bundle alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import tiny
from sightline.bundle import Bundle, Tokenizer
from sightline.bundle.add_languages import add_languages
from sightline.bundle.languages import LANGUAGES_FILE
from sightline.bundle.relevance_formula import PairRelevance
from sightline.errors import BundleError, OptionError

RELEVANCE = PairRelevance({"cosine": 10.0, "bias": -5.0})


@pytest.fixture
def own(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny_bundle, tmp_path / "own"))


@pytest.fixture
def german(own: Path, german_text: Path) -> Path:
    """The tiny bundle with an add-on for German."""
    words = {"de": ["hund", "strand"]}
    add_languages(
        own,
        german_text / "text.onnx",
        german_text / "tokenizer.json",
        ["de", "fr"],
        max_length=tiny.MAX_LENGTH,
        relevance=RELEVANCE,
        words=words,
    )
    return own


def test_an_add_on_encodes_its_languages_with_its_own_graph_and_tokenizer(german: Path) -> None:
    bundle = Bundle.open(german)
    assert bundle.languages == ("en", "de", "fr")
    other = bundle.for_language("de")
    english, translated = bundle.encode_texts(["dog beach"]), other.encode_texts(["Hund Strand"])
    assert translated.embedding.shape == english.embedding.shape
    assert not np.allclose(translated.embedding, english.embedding)
    assert other.relevance == RELEVANCE
    assert bundle.relevance is None
    assert list(other.words) == ["hund", "strand"]
    assert list(bundle.for_language("fr").words) == []


def test_english_and_the_identity_stay_what_they_were(own: Path, german: Path, tiny_bundle: Path) -> None:
    before, after = Bundle.open(tiny_bundle), Bundle.open(german)
    assert after.sha256 == before.sha256 == after.for_language("de").sha256
    assert after.for_language("en") is after
    texts = ["a dog on the beach", "two cat"]
    np.testing.assert_array_equal(after.encode_texts(texts).embedding, before.encode_texts(texts).embedding)


def test_english_reads_nothing_of_the_add_on_but_its_spec(german: Path) -> None:
    for name in ("text.onnx", "tokenizer.json", "words.json"):
        (german / "languages" / name).unlink()
    bundle = Bundle.open(german)
    assert "de" in bundle.languages
    bundle.for_language("en").encode_texts(["a dog"])
    with pytest.raises(BundleError, match=r"text\.onnx cannot be read"):
        bundle.for_language("de")


def test_images_and_matches_are_those_of_the_bundle(german: Path) -> None:
    bundle = Bundle.open(german)
    other = bundle.for_language("de")
    pixels = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    np.testing.assert_array_equal(other.encode_images(pixels).embedding, bundle.encode_images(pixels).embedding)
    assert other.engine("match") is bundle.engine("match")
    assert bundle.for_language("fr").engine("text") is other.engine("text")
    text, image = other.encode_texts(["Hund"]), other.encode_images(pixels)
    assert text.states is not None
    assert image.states is not None
    assert other.match(text.states, text.mask, image.states, image.mask).shape == (1,)


def test_the_same_language_with_other_threads(german: Path) -> None:
    other = Bundle.open(german, threads=2).for_language("de").with_threads(1)
    assert other.threads == 1
    assert list(other.words) == ["hund", "strand"]


def test_a_language_that_is_missing_lists_those_that_are_there(german: Path) -> None:
    with pytest.raises(OptionError, match="lang cannot be 'tr': tiny reads en, de, fr"):
        Bundle.open(german).for_language("tr")


def test_an_add_on_of_another_bundle_is_refused(german: Path) -> None:
    path = german / "languages" / LANGUAGES_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "bundle": "f" * 64}))
    bundle = Bundle.open(german)
    bundle.for_language("en")
    with pytest.raises(BundleError, match="belongs to another bundle \\(ffffffffffff…\\)"):
        bundle.for_language("de")


@pytest.mark.parametrize("name", ["text.onnx", "tokenizer.json", "words.json"])
def test_a_damaged_file_of_an_add_on_is_refused(german: Path, name: str) -> None:
    with (german / "languages" / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(BundleError, match=f"{name}: sha256 is"):
        Bundle.open(german).for_language("de")


@pytest.mark.parametrize(
    ("table", "key", "value", "says"),
    [
        (None, "files", {"../text.onnx": "0" * 64}, r"must list the files .*, but lists \.\./text\.onnx"),
        (
            "text",
            "tokenizer",
            "../tokenizer.json",
            r"must be tokenizer\.json, not '\.\./tokenizer\.json'",
        ),
        ("text", "languages", [], "lists no languages"),
    ],
)
def test_a_spec_of_other_files_or_no_language_is_refused(
    german: Path, table: str | None, key: str, value: object, says: str
) -> None:
    path = german / "languages" / LANGUAGES_FILE
    spec = json.loads(path.read_text())
    (spec[table] if table else spec)[key] = value
    path.write_text(json.dumps(spec))
    with pytest.raises(BundleError, match=says):
        Bundle.open(german).for_language("de")


def test_a_graph_with_other_outputs_is_not_added(own: Path, german_text: Path, tmp_path: Path) -> None:
    graph = onnx.load(german_text / "text.onnx")
    del graph.graph.output[[one.name for one in graph.graph.output].index("states")]
    onnx.save(graph, tmp_path / "text.onnx")
    with pytest.raises(BundleError, match="states has width None, but in tiny's text graph it has 24"):
        add_languages(own, tmp_path / "text.onnx", german_text / "tokenizer.json", ["de"], max_length=9)
    assert sorted(own.iterdir()) == tiny_files(own)


def tiny_files(own: Path) -> list[Path]:
    """What a bundle without an add-on consists of."""
    return [own / name for name in ("image.onnx", "match.onnx", "sightline.json", "text.onnx", "tokenizer.json")]


@pytest.mark.parametrize(
    ("languages", "says"),
    [
        (["de", "en"], "tiny already reads en\n"),
        (["de", "nl", "de"], "languages listed more than once: de\n"),
        ([], "no languages to add\n"),
    ],
)
def test_only_new_languages_are_added_each_once(own: Path, german_text: Path, languages: list[str], says: str) -> None:
    with pytest.raises(BundleError, match=says):
        add_languages(own, german_text / "text.onnx", german_text / "tokenizer.json", languages, max_length=9)
    assert sorted(own.iterdir()) == tiny_files(own)


def test_a_new_add_on_replaces_the_old_one(german: Path, german_text: Path) -> None:
    add_languages(german, german_text / "text.onnx", german_text / "tokenizer.json", ["nl"], max_length=9)
    assert Bundle.open(german).languages == ("en", "nl")
    assert not (german / "languages" / "words.json").exists()
    assert Tokenizer.open(german / "languages" / "tokenizer.json", 9).id_of("hund") is not None


def test_the_add_on_of_the_default_model_is_small(default_bundle: Path) -> None:
    assert sum(path.stat().st_size for path in (default_bundle / "languages").glob("*")) <= 45e6
