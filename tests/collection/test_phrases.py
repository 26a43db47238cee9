"""Phrases of a query become filters where they match something, and stay words where they do not."""

from datetime import date

import pytest

from sightline.collection.query_text.phrases import Understood, understand

FOLDERS = ["Italy", "trips", "trips/2021 Norway", "trips/snow", "family/Anna", "old/Italy"]
TODAY = date(2026, 11, 16)


def understood(text: str, *literal: str, nothing: bool = False) -> Understood:
    return understand(
        text,
        today=TODAY,
        folders=FOLDERS,
        albums=["Zoo", "Zoo 2"],
        matches=lambda where: not nothing,
        literal=literal,
    )


@pytest.mark.parametrize(
    ("text", "words", "kinds"),
    [
        ("a dog in August 2023", "a dog", ["date"]),
        ("last summer, a boat", "a boat", ["date"]),
        ("August 2023", "", ["date"]),
        ("2023", "", ["date"]),
        ("IMG_0080", "", ["name"]),
        ("the dog of DSC01234.jpg", "the dog of", ["name"]),
        ("a church in Italy", "a church", ["folder"]),
        ("boats from 2021 Norway", "boats", ["folder"]),
        ("cats in the folder trips", "cats", ["folder"]),
        ("folder snow", "", ["folder"]),
        ("lions in my album zoo 2", "lions", ["album"]),
        ("Anna in Italy in May 2020", "Anna", ["folder", "date"]),
        ("photos from June 2023", "", ["date"]),
        ("show me all my pictures from Italy taken in 2021", "", ["folder", "date"]),
        ("photos of a wall in 2021", "photos of a wall", ["date"]),
    ],
)
def test_what_is_no_subject_becomes_a_filter(text: str, words: str, kinds: list[str]) -> None:
    found = understood(text)
    assert found.words == words
    assert [phrase.kind for phrase in found.phrases] == kinds


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("ＩＭＧ＿００８０ ｄｏｇ", "IMG_0080 dog"),
        ("ａ ｄｏｇ ｉｎ Ａｕｇｕｓｔ ２０２３", "a dog in August 2023"),
        ("boats from ２０２１ Ｎｏｒｗａｙ", "boats from 2021 Norway"),
        ("lions in my album Ｚｏｏ ２", "lions in my album Zoo 2"),
    ],
)
def test_full_width_letters_are_understood_like_plain_ones(typed: str, plain: str) -> None:
    assert understood(typed) == understood(plain)
    assert understood(plain).phrases
    phrase = understood(plain).phrases[0]
    as_typed, as_shown = (text[phrase.start : phrase.end] for text in (typed, plain))
    assert understood(typed, as_typed) == understood(typed, as_shown) != understood(typed)


def test_folders_and_albums_with_full_width_names_are_found() -> None:
    for text in ("旅行 in the folder ２０２３夏", "旅行 in the folder 2023夏", "旅行 in album ２０２３夏"):
        found = understand(
            text, today=TODAY, folders=["旅行/２０２３夏"], albums=["２０２３夏"], matches=lambda where: "２" in where
        )
        assert len(found.phrases) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a dog in snow",
        "a girl called May",
        "Anna",
        "people on trips",
        "a zoo",
        "an album",
        "3D glasses",
        "a dog",
        "Italy",
    ],
)
def test_words_for_what_a_picture_shows_stay_words(text: str) -> None:
    assert understood(text) == Understood(text)


def test_what_matches_nothing_stays_words() -> None:
    found = understood("a dog in August 2023", nothing=True)
    assert (found.words, found.phrases) == ("a dog in August 2023", ())
    assert [(one.text, one.label) for one in found.unmatched] == [("in August 2023", "2023-08-01 to 2023-08-31")]
    assert understood("a dog in Italy", nothing=True) == Understood("a dog in Italy"), "folders are often words"


def test_what_was_taken_back_stays_words() -> None:
    found = understood("a church in Italy in May 2020", "in Italy")
    assert (found.words, [phrase.kind for phrase in found.phrases]) == ("a church in Italy", ["date"])


def test_filters_are_joined_and_quotes_are_safe() -> None:
    found = understood("a church in Italy in May 2020")
    assert found.where == (
        "(folder = 'Italy' or folder like 'Italy/%' or folder = 'old/Italy' or folder like 'old/Italy/%')"
        " and (taken >= '2020-05-01' and taken <= '2020-05-31')"
    )
