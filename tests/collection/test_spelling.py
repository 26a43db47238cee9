"""Queries that a model cannot read, and words that may be misspelt."""

import tracemalloc

import pytest

from sightline.bundle.words import Words
from sightline.collection.query_text.spelling import Wording, check_wording
from sightline.languages.corrections import corrected

TRAINED = Words(
    ["a", "dog", "on", "the", "beach", "brown", "elephant", "motorcycle", "soccer", "playing", "people", "bicycle"]
)


def check(text: str, *, whole: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> Wording:
    return check_wording(text, ["en"], TRAINED, lambda word: word in whole, lambda: names)


@pytest.mark.parametrize("text", ["🐶", "...", "?! ♥"])
def test_a_query_without_words_is_noticed(text: str) -> None:
    assert "No words to search for" in (check(text).notice or "")


@pytest.mark.parametrize("text", ["the", "in ", "Of the", "IN THE", "is it?", "what are these", "I ❤ you", "A"])
def test_filler_words_are_noticed_in_english(text: str) -> None:
    found = check_wording(text, ["en", "sv"], TRAINED, lang="en")
    assert not found.has_content
    assert "do not say what an image shows" in (found.notice or "")
    assert check_wording(text, ["en", "sv"], lang="sv").has_content  # "is" is ice in Swedish


@pytest.mark.parametrize(
    "text", ["a dog", "one", "two", "2023", "a picture", "the x", "black", "US", "IT", "WHO", "OR", "in the US"]
)
def test_a_word_number_or_abbreviation_is_content(text: str) -> None:
    assert check_wording(text, ["en"], lang="en") == Wording()


@pytest.mark.parametrize("text", ["🐶", "I ❤ you", "?! ♥"])
def test_symbols_are_content_if_the_tokenizer_reads_any_of_them(text: str) -> None:
    assert check_wording(text, ["en"], lang="en", knows_any=lambda symbols: symbols in "🐶❤♥") == Wording()
    assert not check_wording(text, ["en"], lang="en", knows_any=lambda symbols: False).has_content
    assert not check_wording("...", ["en"], lang="en", knows_any=lambda symbols: True).has_content


@pytest.mark.parametrize("text", ["собака на пляже", "狗", "كلب", "שלג"])
def test_a_script_that_the_model_was_not_trained_on_is_noticed(text: str) -> None:
    found = check(text)
    assert "not trained on this script" in (found.notice or "")
    assert found.did_you_mean is None


@pytest.mark.parametrize(
    ("text", "languages"), [("собака", ["ru"]), ("狗", ["zh", "en"]), ("собака", ["mul"]), ("犬", ["ja"]), ("x", [])]
)
def test_a_script_of_a_language_that_the_model_reads_is_fine(text: str, languages: list[str]) -> None:
    assert check_wording(text, languages) == Wording()


@pytest.mark.parametrize("text", ["ein hund am strand", "un perro en la playa"])
def test_another_language_is_noticed_and_nothing_is_suggested_for_it(text: str) -> None:
    found = check(text)
    assert "not trained on most of these words" in (found.notice or "")
    assert found.did_you_mean is None


@pytest.mark.parametrize("text", ["a dog", "Dogs on the BEACH", "2023", "the dog, 3 elephants"])
def test_known_words_are_not_mentioned(text: str) -> None:
    assert check(text) == Wording()


def test_a_word_of_the_tokenizer_is_taken_for_known() -> None:
    assert check("penguin", whole=("penguin",)) == Wording()
    assert "not trained on “penguin”" in (check("penguin").notice or "")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a brwon dog", "a brown dog"),
        ("Elefant", "elephant"),
        ("motorcyle", "motorcycle"),
        ("people playng socer", "people playing soccer"),
        ("a brwon dgo", "a brown dog"),
        ("bycicle on the baech", "bicycle on the beach"),
    ],
)
def test_misspelt_words_are_suggested(text: str, meant: str) -> None:
    assert check(text).did_you_mean == meant


def test_file_names_are_known_words_and_may_be_meant() -> None:
    assert check("lisbon", names=("lisbon",)).did_you_mean is None
    assert check("lisbn", names=("lisbon",)).did_you_mean == "lisbon"


def test_file_names_are_read_only_for_an_unknown_word() -> None:
    def names() -> tuple[str, ...]:
        raise AssertionError("read")

    assert check_wording("a dog", ["en"], TRAINED, lambda word: False, names) == Wording()


def test_a_model_without_words_knows_all() -> None:
    assert check_wording("qwertyuiop", ["en"]) == Wording()


def test_a_short_word_is_corrected_only_among_misspelt_words_and_to_one_word() -> None:
    assert check("dgo").did_you_mean is None
    assert check("a dgo on the beach").did_you_mean is None
    assert check("a brwon gdo").did_you_mean is None
    rare = Words(["a", "brown", *(f"word{place}" for place in range(3000)), "got"])
    assert check_wording("a brwon gto", ["en"], rare, lambda word: False).did_you_mean is None
    frequent = Words(["a", "brown", "got"])
    assert check_wording("brwon a gto", ["en"], frequent, lambda word: False).did_you_mean == "brown a got"


def test_short_words_are_not_corrected_and_frequent_ones_are_preferred() -> None:
    assert corrected("dgo", {"dog": 0}) is None
    assert corrected("beech", {"beach": 1, "leech": 0}) == "leech"


def test_words_without_spaces_are_not_called_unknown() -> None:
    assert check_wording("海滩上的狗", ["zh"], Words(["海滩", "狗"]), is_whole=lambda word: False) == Wording()


MANY = ["en", "ar", "de", "fr", "ja", "zh"]


@pytest.mark.parametrize(
    ("text", "languages", "lang", "told"),
    [
        ("...", ["en"], None, "in English."),
        ("...", ["en", "de"], None, "in English or German."),
        ("...", ["en", "de", "fr"], None, "in English, German or French."),
        ("...", MANY, None, "in English or 5 other languages."),
        ("שלג", MANY, "de", "The model reads English and 5 other languages; it was not trained on this script"),
        ("Zwiebelturm", MANY, "de", "not trained on “zwiebelturm” (it reads German and 5 other languages);"),
        ("Zwiebelturm", ["mul"], None, "not trained on “zwiebelturm”; results"),
    ],
)
def test_of_many_languages_a_notice_names_one_and_the_number_of_others(
    text: str, languages: list[str], lang: str | None, told: str
) -> None:
    notice = check_wording(text, languages, TRAINED, lambda word: False, lang=lang).notice
    assert told in (notice or "")


@pytest.mark.parametrize("text", ["собаками", "красных машин", "девочка кормит лошадей", "велосипедистами"])
def test_forms_of_words_in_an_inflected_language_are_not_called_unknown(text: str) -> None:
    trained = Words(["собака", "красный", "машина", "девочка", "лошадь", "велосипедист"])
    assert check_wording(text, ["en", "ru"], trained, lambda word: False) != Wording()
    assert check_wording(text, ["en", "ru"], trained, lambda word: False, lang="ru") == Wording()


def test_a_very_long_word_needs_little_memory() -> None:
    """All edits of a word of 2,000 letters are over 200 MB."""
    tracemalloc.start()
    try:
        assert corrected("a" * 2_000, {"elephant": 0}) is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
