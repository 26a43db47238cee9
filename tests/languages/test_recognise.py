"""The language of a query is recognised among those of the model, and English is preferred in case of doubt."""

import csv
from pathlib import Path

import pytest

import sightline
from sightline.bundle.words import Words, words_in
from sightline.languages.recognise import recognise
from sightline.registry.installed import InstalledModel
from sightline.registry.loader import locate
from sightline.retrieval.language import language_of

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "tr", "ru", "zh", "ja", "ar")
QUERIES = Path(__file__).parents[2] / "benchmarks" / "languages" / "queries.tsv"


@pytest.fixture(scope="module")
def words() -> Words:
    return Words(InstalledModel.read("default", locate("default")).spec.words.split())


def test_nearly_all_queries_of_every_language_are_recognised(words: Words) -> None:
    with QUERIES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    for lang in LANGUAGES:
        found = [
            recognise(row[lang], LANGUAGES, lambda text: all(one in words for one in words_in(text))) for row in rows
        ]
        assert found.count(lang) >= 0.85 * len(rows), (lang, found)
        if lang == "en":
            assert set(found) == {"en"}


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("", "en"),
        ("🐶", "en"),
        ("2023", "en"),
        ("pizza", "en"),
        ("IMG_1234.jpg", "en"),
        ("富士山の写真", "ja"),
        ("iPhone 写真", "ja"),
        ("собака", "ru"),
        ("강아지", "ko"),
        ("σκύλος στην παραλία", "el"),
        ("कुत्ता", "hi"),
        ("5 µm", "en"),
    ],
)
def test_scripts_decide_where_they_can(text: str, lang: str) -> None:
    assert recognise(text, [*LANGUAGES, "ko", "el", "hi"]) == lang


def test_only_languages_of_the_model_are_recognised() -> None:
    assert recognise("Hund am Strand", ["en"]) == "en"
    assert recognise("Hund am Strand", ["en", "nl"]) in ("en", "nl")
    assert recognise("собака на пляже", ["en", "de"]) == "en"
    assert recognise("富士山", ["en", "ja"]) == "ja"
    assert recognise("собака", ["en", "uk"]) == "uk"
    assert recognise("un chien sur la plage", ["de", "fr"]) == "fr"


def test_languages_without_a_column_are_no_trouble() -> None:
    assert recognise("Hund am Strand", ["en", "eo", "de"]) == "de"
    assert recognise("hundo sur strando", ["eo", "en"]) == "eo"
    assert recognise("یہ ایک کتا ہے", ["en", "ur"]) == "ur"


def test_words_that_the_model_knows_stay_english() -> None:
    known = {"restaurant", "piano"}
    assert recognise("piano restaurant", ["en", "fr"], lambda text: set(text.split()) <= known) == "en"


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("a hosre", "en"),
        ("zbera", "en"),
        ("on teh grss", "en"),
        ("a dgo", "en"),
        *((word, "en") for word in ("piano", "koala", "opera", "dune", "fog", "radio")),  # in other languages, too
        ("Strand", "de"),
        ("plage", "fr"),
        ("Hund am Strand", "de"),
        ("deux chiens", "fr"),
        ("kočka na stole", "cs"),
        ("ein Hnud am Strand", "de"),  # most of it is no English
        ("Un hommme avec un", "fr"),  # every word is like an English one, but only one is misspelt French
        ("braun wesser Hund", "de"),
        ("com taacos de golfe", "pt"),
    ],
)
def test_a_misspelt_or_short_query_keeps_its_language(text: str, lang: str) -> None:
    """As far as the bundled model has words of the other language."""
    assert language_of(text, sightline.load("default")) == lang


def test_the_table_is_small() -> None:
    import sightline.languages as package

    folder = Path(package.__file__ or "").parent
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < 1.5e6
