"""The language of a search on the page: recognised, shown beside the search box, and changed there."""

import dataclasses
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

import sightline
from browser.conftest import LIMITS, Opener, executable
from browser.page import search, serious, settled, tiles
from server.served import opening, served
from sightline.bundle import Bundle
from sightline.bundle.spec import write_spec
from sightline.server.app import create_app

COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def german_address(german_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a few images are served, with a model that reads English and German."""
    with serving(german_bundle, tmp_path_factory.mktemp("colours")) as where:
        yield where


@pytest.fixture(scope="module")
def english_address(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with a model that reads only English."""
    with serving(tiny_bundle, tmp_path_factory.mktemp("colours")) as where:
        yield where


@contextmanager
def serving(bundle: Path, folder: Path) -> Iterator[str]:
    executable()
    for colour in COLOURS:
        Image.new("RGB", (40, 30), colour).save(folder / f"{colour}.png")
    sightline.index(folder, model=bundle)
    with opening(folder, LIMITS) as found, served(create_app(found.service)) as where:
        yield where


def shown(page: Page) -> str:
    """The language beside the search box."""
    return str(page.get_by_label("Language of the words").evaluate("one => one.selectedOptions[0].textContent"))


def test_the_language_is_recognised_and_can_be_changed(open_page: Opener, german_address: str) -> None:
    page = settled(open_page(at=german_address))
    language = page.get_by_label("Language of the words")
    expect(language).to_be_hidden()
    search(page, "Hund am Strand")
    expect(tiles(page)).to_have_count(len(COLOURS))
    expect(language).to_be_visible()
    assert shown(page) == "German (auto)"
    assert serious(page) == []
    assert language.locator("option").all_text_contents() == ["German (auto)", "English", "German"]
    with page.expect_response(re.compile("/v1/search.*lang=en")) as answered:
        language.select_option("English")
    assert answered.value.json()["lang"] == "en"
    settled(page)
    expect(page).to_have_url(re.compile("lang=en"))
    assert shown(page) == "English"
    page.go_back()
    settled(page)
    assert shown(page) == "German (auto)"
    search(page, "a dog on the beach")
    assert shown(page) == "English (auto)"


def test_a_narrow_screen_leaves_room_for_the_words(open_page: Opener, german_address: str) -> None:
    page = open_page("?q=Hund+am+Strand", at=german_address)
    page.set_viewport_size({"width": 380, "height": 700})
    expect(page.get_by_label("Language of the words")).to_be_visible()
    box = page.get_by_label("What to find").bounding_box()
    assert box is not None
    assert box["width"] > 140


def test_a_link_keeps_the_language_and_explanations_use_it(open_page: Opener, german_address: str) -> None:
    page = settled(open_page("?q=ball&lang=de", at=german_address))
    assert shown(page) == "German"
    with page.expect_response(re.compile("/v1/explain.*lang=de")):
        tiles(page).first.click()


def test_a_model_of_one_language_offers_no_choice(open_page: Opener, english_address: str) -> None:
    page = search(settled(open_page(at=english_address)), "a ball")
    expect(page.get_by_label("Language of the words")).to_be_hidden()


@pytest.mark.parametrize(
    ("languages", "told"),
    [
        (["en"], "The model reads English."),
        (["en", "de", "fr"], "The model reads English, German and French."),
        (["en", "de", "fr", "ja", "zh"], "The model reads English and 4 other languages."),
    ],
)
def test_where_nothing_is_found_a_few_languages_are_named(
    languages: list[str], told: str, open_page: Opener, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    spec = Bundle.open(bundle).spec
    write_spec(bundle, dataclasses.replace(spec, text=dataclasses.replace(spec.text, languages=tuple(languages))))
    (tmp_path / "colours").mkdir()
    with serving(bundle, tmp_path / "colours") as where:
        page = settled(open_page("?q=a+ball&to=1999-01-01", at=where))
        expect(page.locator("#message")).to_contain_text(told)
