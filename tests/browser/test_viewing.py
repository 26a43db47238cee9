"""The enlarged view: words and where they are, keys, and the ways in and out."""

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Opener
from browser.page import first, heat, named, names, settled, tiles, word

GUITAR = "?q=drums+and+a+guitar"


def opened(open_page: Opener, path: str, name: str, **options: Any) -> Page:
    """The page with one of its results enlarged, and its words explained."""
    page = settled(open_page(path, **options))
    page.get_by_role("button", name=named(name)).click()
    expect(page.locator("#hint")).to_contain_text("a word to see where it was found.")
    return page


def test_the_heat_map_shows_each_word_where_it_is(open_page: Opener) -> None:
    page = opened(open_page, GUITAR, "drums-and-guitar.jpg")
    expect(page.locator("#heat")).to_be_hidden()
    word(page, "guitar").hover()
    guitar = heat(page)
    word(page, "drums").hover()
    expect(page.locator("#heat")).to_have_attribute("data-word", "drums")
    drums = heat(page)
    assert np.abs(guitar - drums).mean() > 10
    half = guitar.shape[1] // 2
    assert guitar[:, half:].mean() > 1.5 * guitar[:, :half].mean()  # it stands on the right
    assert drums[:, :half].sum() / drums.sum() > guitar[:, :half].sum() / guitar.sum() + 0.2
    assert page.locator("#heat").get_attribute("aria-label") is not None
    page.locator("#viewer-name").hover()
    expect(page.locator("#heat")).to_be_hidden()


def test_the_heat_of_a_bird_is_on_the_bird(open_page: Opener) -> None:
    page = opened(open_page, "?q=a+bird+on+a+branch", "kingfisher.jpg")
    word(page, "bird").focus()
    bird = heat(page)
    rows, columns = bird.shape
    inside = bird[: int(0.86 * rows), int(0.28 * columns) : int(0.68 * columns)]
    row, column = np.unravel_index(bird.argmax(), bird.shape)
    assert row < 0.86 * rows
    assert 0.28 * columns < column < 0.68 * columns
    assert inside.mean() > 2 * (bird.sum() - inside.sum()) / (bird.size - inside.size)


@pytest.mark.parametrize(
    ("box", "hottest", "cold"),
    [
        ((0.0, 0.0, 1.0, 1.0), (0.75, 0.25), None),
        ((0.25, 0.0, 0.75, 1.0), (0.625, 0.25), (slice(None), slice(0, 20))),  # a model that crops
        ((0.0, -0.5, 1.0, 1.5), (0.75, 0.0), None),  # one that pads
    ],
)
def test_the_heat_map_keeps_to_the_part_that_the_model_saw(
    open_page: Opener, box: tuple[float, ...], hottest: tuple[float, float], cold: Any
) -> None:
    grid = [[0.1, 0.9], [0.1, 0.1]]
    words = [{"word": "bird", "start": 2, "end": 6, "score": 0.9, "grid": grid}]
    answer = {"query": "a bird", "id": 1, "rows": 2, "columns": 2, "words": words}
    page = settled(open_page("?q=a+bird"))
    sides = dict(zip(("left", "top", "right", "bottom"), box, strict=True))
    page.route("**/v1/explain*", lambda route: route.fulfill(json={**answer, "box": sides}))
    first(page).click()
    word(page, "bird").hover()
    found = heat(page)
    rows, columns = found.shape
    place = (int(hottest[1] * (rows - 1)), int(hottest[0] * (columns - 1)))
    assert found[place] == pytest.approx(found.max(), abs=3)
    assert found.max() - found.min() > 200
    if cold:
        assert np.ptp(found[cold]) == 0
        assert found[cold].max() == found.min()


def test_a_tap_keeps_a_word_and_another_lets_it_go(open_page: Opener) -> None:
    page = opened(open_page, GUITAR, "drums-and-guitar.jpg", has_touch=True)
    word(page, "guitar").tap()
    expect(word(page, "guitar")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#heat")).to_be_visible()
    word(page, "guitar").tap()
    expect(page.locator("#heat")).to_be_hidden()


def test_the_keyboard_is_enough(open_page: Opener) -> None:
    page = settled(open_page("?q=an+animal"))
    page.keyboard.press("/")
    expect(page.get_by_label("What to find")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(first(page)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tiles(page).nth(1)).to_be_focused()
    page.keyboard.press("ArrowDown")
    tops = [box["y"] for box in (tiles(page).nth(place).bounding_box() for place in range(len(names(page)))) if box]
    below = page.evaluate("document.activeElement.getBoundingClientRect().top")
    assert below > tops[1]
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") < below
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    shown = names(page)
    name = page.locator("#viewer-name")
    expect(name).to_have_text(shown[0].split(",")[0])
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(name).to_have_text(shown[2].split(",")[0])
    page.keyboard.press("ArrowLeft")
    expect(name).to_have_text(shown[1].split(",")[0])
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    expect(tiles(page).nth(1)).to_be_focused()


def test_the_focus_stays_in_the_enlarged_view_and_words_shine_when_they_have_it(open_page: Opener) -> None:
    page = opened(open_page, GUITAR, "drums-and-guitar.jpg")
    seen = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.querySelector('main').contains(document.activeElement)")
        seen.add(page.locator("#heat").get_attribute("data-word"))
    assert {"drums", "and", "a", "guitar", ""} <= seen
    word(page, "guitar").focus()
    for _ in range(2):  # also from a word that goes away with its picture
        page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-name")).to_have_text(names(page)[2].split(",")[0])


def test_back_closes_and_a_link_to_a_picture_opens_it(open_page: Opener) -> None:
    page = opened(open_page, GUITAR, "drums-and-guitar.jpg")
    expect(page).to_have_url(re.compile(r"\?q=drums\+and\+a\+guitar&open=\d+$"))
    link = page.url
    page.go_back()
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"guitar$"))
    page.go_forward()
    expect(page.locator("#viewer")).to_be_visible()
    other = settled(open_page(link.partition("/?")[2].join(("?", ""))))
    expect(other.locator("#viewer-name")).to_have_text("drums-and-guitar.jpg")
    expect(word(other, "guitar")).to_be_visible()
    other.get_by_role("button", name="Close").click()
    expect(other.locator("#viewer")).to_be_hidden()
    expect(other).to_have_url(re.compile(r"guitar$"))


def test_steps_of_the_history_are_searches_and_not_keystrokes(open_page: Opener) -> None:
    page = settled(open_page())
    words = page.get_by_label("What to find")
    words.press_sequentially("a dog", delay=5)
    words.press("Enter")
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
    words.fill("")
    words.press_sequentially("a castle", delay=5)
    words.press("Enter")
    expect(first(page)).to_have_attribute("aria-label", named("castle-on-the-water.jpg"))
    page.go_back()
    expect(words).to_have_value("a dog")
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
    page.go_back()
    expect(words).to_have_value("")
    expect(page.locator("#examples")).to_be_visible()
    page.go_forward()
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))


def test_the_picture_itself_is_shown_with_what_is_known_of_it(open_page: Opener) -> None:
    page = opened(open_page, "?q=an+old+castle", "castle-on-the-water.jpg")
    image = page.locator("#viewer-image")
    expect(image).to_have_js_property("naturalWidth", 512)
    expect(page.locator("#viewer-facts span")).to_have_text(
        [re.compile(r"^\d+% likely"), "trips/2021", "2021-05-06 07:08", "512 × 384"]
    )
    href = page.get_by_role("link", name="Open the file").get_attribute("href")
    assert re.fullmatch(r"/v1/items/\d+/image\?v=[0-9a-f]{16}", href or "")
    page.get_by_role("button", name="More like this").last.click()
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"\?like=\d+$"))


def test_a_picture_whose_file_is_gone_says_so_when_enlarged(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 404")
    page = settled(open_page("?q=a+dog"))
    page.route(re.compile(r"/v1/items/\d+/image"), lambda route: route.fulfill(status=404))
    first(page).click()
    expect(page.locator("#viewer-wrong")).to_contain_text("cannot be loaded")
    page.unroute_all()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-wrong")).to_be_hidden()


def test_a_star_does_not_hide_that_the_file_is_gone(open_page: Opener, allowed: list[str]) -> None:
    allowed += ["status of 404", "status of 507"]
    page = settled(open_page("?q=a+dog"))
    page.route(re.compile(r"/v1/items/\d+/image"), lambda route: route.fulfill(status=404))
    page.route("**/v1/albums/*", lambda route: route.fulfill(status=507, json={"detail": "the disk is full"}))
    first(page).click()
    star, wrong = page.locator("#viewer-star"), page.locator("#viewer-wrong")
    expect(wrong).to_contain_text("cannot be loaded")
    star.click()
    expect(wrong).to_have_text("The disk is full.")
    page.route("**/v1/albums/*", lambda route: route.fulfill(json={}))
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(wrong).to_contain_text("cannot be loaded")


def test_a_touch_screen_speaks_of_tapping(open_page: Opener) -> None:
    page = settled(open_page("?q=a+dog", has_touch=True, is_mobile=True))
    first(page).tap()
    expect(page.locator("#hint")).to_have_text("Tap a word to see where it was found.")


def test_words_that_run_from_right_to_left_stay_in_their_order(open_page: Opener) -> None:
    page = settled(open_page("?q=كلب+على+الشاطئ"))
    assert page.locator("#words").evaluate("field => field.matches(':dir(rtl)')")
    first(page).click()
    buttons = page.locator("#viewer-words .word")
    expect(buttons.first).to_have_text("كلب")
    boxes = [box for box in (one.bounding_box() for one in buttons.all()) if box]
    assert [box["x"] for box in boxes] == sorted((box["x"] for box in boxes), reverse=True)
