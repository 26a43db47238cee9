"""Selecting many pictures, and what is done with them: archives, paths and albums."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import APIResponse, Page, Route, expect

import sightline
from browser.conftest import LIMITS, Filler, Opener
from browser.page import Held, first, names, search, serious, settled, tiles
from server.served import opening, served
from sightline.server.app import create_app

NAMES = ("owl", "dog", "coffee", "horses", "cat-face", "red-panda")


@pytest.fixture
def own(fill: Filler, tmp_path: Path) -> Iterator[str]:
    """Where six pictures are served that a test may put into albums."""
    fill(tmp_path, NAMES)
    with opening(tmp_path, LIMITS) as found, served(create_app(found.service)) as address:
        yield address


def pick(page: Page, place: int, **options: object) -> None:
    tiles(page).nth(place).hover()
    page.locator("#results .pick").nth(place).click(**options)  # type: ignore[arg-type]


def test_clicks_shift_keys_and_strokes_select(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    expect(page.locator("#selected")).to_be_hidden()
    pick(page, 0)
    expect(page.locator("#selected-count")).to_have_text("1 picture selected")
    pick(page, 3, modifiers=["Shift"])
    expect(page.locator("#selected-count")).to_have_text("4 pictures selected")
    tiles(page).nth(1).click()  # while some are selected, a click selects
    expect(page.locator("#selected-count")).to_have_text("3 pictures selected")
    expect(page.locator("#viewer")).to_be_hidden()
    assert serious(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#selected")).to_be_hidden()
    first(page).focus()
    page.keyboard.press("x")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#selected-count")).to_have_text("3 pictures selected")
    page.keyboard.press("Control+a")
    expect(page.locator("#selected-count")).to_have_text("6 pictures selected")
    page.get_by_role("button", name="Clear").last.click()
    expect(page.locator("#selected")).to_be_hidden()
    tiles(page).nth(0).hover()
    page.locator("#results .pick").nth(0).hover()
    page.mouse.down()
    for place in (1, 2):
        tiles(page).nth(place).hover()
    page.mouse.up()
    expect(page.locator("#selected-count")).to_have_text("3 pictures selected")


def test_shift_selects_from_the_picture_that_a_key_selected(own: str, open_page: Opener) -> None:
    page = search(settled(open_page(at=own)), "an animal")
    tiles(page).nth(2).focus()
    page.keyboard.press("x")
    expect(page.locator("#selected-count")).to_have_text("1 picture selected")
    pick(page, 4, modifiers=["Shift"])
    expect(page.locator("#selected-count")).to_have_text("3 pictures selected")
    tiles(page).nth(2).focus()
    page.keyboard.press("x")
    expect(page.locator("#selected-count")).to_have_text("2 pictures selected")


def test_the_selected_are_downloaded_as_an_archive(own: str, open_page: Opener, tmp_path: Path) -> None:
    page = settled(open_page(at=own))
    pick(page, 1)
    pick(page, 2)
    labels = page.locator(".is-picked .open").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "got.zip")
    with zipfile.ZipFile(tmp_path / "got.zip") as archive:
        assert sorted(archive.namelist()) == sorted(labels)
        assert archive.testzip() is None
    expect(page.locator("#selected")).to_be_visible()


def test_paths_are_copied(own: str, open_page: Opener, tmp_path: Path) -> None:
    page = settled(open_page(at=own, permissions=["clipboard-read", "clipboard-write"]))
    pick(page, 0)
    page.get_by_role("button", name="Copy paths").click()
    expect(page.locator("#toast")).to_have_text("1 path copied")
    assert re.search(r"/[\w-]+\.jpg$", page.evaluate("navigator.clipboard.readText()"))


def test_albums_and_favourites_are_made_shown_and_left(own: str, open_page: Opener) -> None:
    page = search(settled(open_page(at=own)), "an animal")
    pick(page, 0)
    pick(page, 1)
    page.get_by_role("button", name="Add to album").click()
    page.locator("#album-name").fill("Zoo")
    assert serious(page) == []
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#toast")).to_have_text("2 pictures added to Zoo")
    expect(page.locator("#selected")).to_be_hidden()
    first(page).click()
    star = page.locator("#viewer-star")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    opened = page.url
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(opened)  # closing goes back, which would interrupt going elsewhere
    page.goto(f"{own}/?album=Zoo")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 pictures")
    album = page.locator("#album")
    expect(album.locator("option")).to_have_text(["Any album", "Favourites (1)", "Zoo (2)"])
    pick(page, 0)
    page.get_by_role("button", name="Remove from Zoo").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("1 picture")
    album.select_option("Favourites")
    expect(tiles(page)).to_have_count(1)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete this album").click()
    expect(page.locator("#toast")).to_have_text("The album “Favourites” was deleted.")
    expect(album.locator("option")).to_have_text(["Any album", "Zoo (1)"])
    expect(tiles(page)).to_have_count(6)
    expect(page.get_by_role("button", name="Delete this album")).to_be_hidden()


def test_a_star_clicked_early_counts(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    star = page.locator("#viewer-star")
    late: list[tuple[Route, APIResponse]] = []
    page.route(re.compile(r"/v1/items/\d+$"), lambda route: late.append((route, route.fetch())))
    for is_favourite in ("true", "false"):
        first(page).click()
        star.click()  # before the page knows whether it is a favourite
        page.wait_for_timeout(500)
        route, answer = late.pop()
        route.fulfill(response=answer)
        expect(star).to_have_attribute("aria-pressed", is_favourite)
        page.wait_for_load_state("networkidle")
        expect(star).to_have_attribute("aria-pressed", is_favourite)
        page.keyboard.press("Escape")
    page.unroute_all()
    page.get_by_role("button", name="Filters").click()
    first(page).click()
    changes = Held(page, r"/v1/albums/Favourites")
    for _ in range(3):
        star.click()  # before the answer to the last click
    changes.let_go()
    expect(page.locator("#album option")).to_have_text(["Any album", "Favourites (1)"])
    expect(star).to_have_attribute("aria-pressed", "true")


def test_a_star_waits_for_no_camera_data(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    camera = Held(page, "/camera$")
    first(page).click()
    star = page.locator("#viewer-star")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    camera.let_go()
    page.wait_for_load_state("networkidle")
    expect(star).to_have_attribute("aria-pressed", "true")


def test_a_favourite_that_is_not_saved_is_told(own: str, open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 507")
    page = settled(open_page(at=own))
    page.route("**/v1/albums/*", lambda route: route.fulfill(status=507, json={"detail": "the disk is full"}))
    first(page).click()
    star = page.locator("#viewer-star")
    star.click()
    expect(page.locator("#viewer-wrong")).to_have_text("The disk is full.")
    expect(star).to_have_attribute("aria-pressed", "false")
    assert serious(page) == []
    page.unroute("**/v1/albums/*")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#viewer-wrong")).to_be_hidden()


def test_pictures_that_were_deleted_meanwhile_are_counted(own: str, open_page: Opener, tmp_path: Path) -> None:
    page = settled(open_page(at=own))
    pick(page, 0)
    pick(page, 1)
    (tmp_path / names(page)[0]).unlink()
    sightline.index(tmp_path)
    page.locator("#selected-favourite").click()
    expect(page.locator("#toast")).to_have_text("1 picture added to Favourites; 1 no longer exists")


def test_what_is_selected_while_an_album_is_saved_stays_selected(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    late = Held(page, r"/v1/albums/")
    pick(page, 0)
    page.locator("#selected-favourite").click()
    pick(page, 1)
    late.let_go()
    expect(page.locator("#toast")).to_have_text("1 picture added to Favourites")
    expect(page.locator("#selected-count")).to_have_text("1 picture selected")


def test_an_album_is_asked_for_at_once_and_saved_once(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    names, changes = Held(page, r"/v1/albums$"), Held(page, r"/v1/albums/")
    pick(page, 0)
    page.locator("#selected-album").click()
    page.locator("#album-name").fill("Zoo")  # before the names of the albums have come
    names.let_go()
    for _ in range(3):
        page.keyboard.press("Enter")
    changes.wait_for()
    page.wait_for_timeout(200)
    assert len(changes.routes) == 1
    page.keyboard.press("Escape")
    pick(page, 1)
    page.locator("#selected-album").click()
    changes.let_go()
    expect(page.locator("#toast")).to_have_text("1 picture added to Zoo")
    expect(page.locator("#album-dialog")).to_be_visible()  # it asks about the other picture
    page.locator("#album-name").fill("Farm")
    page.keyboard.press("Enter")
    expect(page.locator("#toast")).to_have_text("1 picture added to Farm")
    expect(page.locator("#album-dialog")).to_be_hidden()
    expect(page.locator("#results")).to_be_focused()


def test_the_focus_goes_to_the_results_when_nothing_is_selected_any_more(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    pick(page, 0)
    page.locator("#selected-favourite").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#selected")).to_be_hidden()
    expect(page.locator("#results")).to_be_focused()


def test_going_back_from_an_album_leaves_nothing_to_remove(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    pick(page, 0)
    page.locator("#selected-favourite").click()
    page.get_by_role("button", name="Filters").click()
    page.locator("#album").select_option("Favourites")
    expect(tiles(page)).to_have_count(1)
    pick(page, 0)
    expect(page.locator("#selected-remove")).to_be_visible()
    page.go_back()
    expect(tiles(page)).to_have_count(6)
    expect(page.locator("#selected-remove")).to_be_hidden()


def test_paths_that_cannot_be_copied_are_not_said_to_be(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as it is without HTTPS
    copy = page.locator("#selected-copy")
    pick(page, 0)
    copy.click()
    expect(page.locator("#toast")).to_have_text("1 path copied")
    expect(copy).to_be_focused()
    page.evaluate("document.execCommand = () => false")
    copy.click()
    expect(page.locator("#toast")).to_have_text("The browser did not allow copying. Try again.")


def test_what_was_done_is_told_above_a_picture_that_was_opened_meanwhile(own: str, open_page: Opener) -> None:
    page = settled(open_page(at=own))
    changes = Held(page, r"/v1/albums/Favourites")
    pick(page, 0)
    page.locator("#selected-favourite").click()
    page.locator("#selected-clear").click()
    first(page).click()
    expect(page.locator("#viewer")).to_be_visible()
    page.clock.install()  # so that it stays until it was looked at
    changes.let_go()
    toast = page.locator("#toast")
    expect(toast).to_have_text("1 picture added to Favourites")
    box = toast.bounding_box()
    assert box
    shown = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    red, green, blue = shown.getpixel((round(box["x"]) + 9, round(box["y"] + box["height"] / 2)))  # type: ignore[misc]
    assert toast.evaluate("one => getComputedStyle(one).backgroundColor") == f"rgb({red}, {green}, {blue})"
    page.clock.run_for(5000)
    expect(toast).to_be_hidden()


def test_a_phone_selects_as_well(own: str, open_page: Opener) -> None:
    page = open_page(at=own, has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    settled(page)
    page.locator("#results .pick").nth(0).tap()
    tiles(page).nth(2).tap()
    expect(page.locator("#selected-count")).to_have_text("2 pictures selected")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    box = page.locator("#selected").bounding_box()
    assert box
    assert box["y"] + box["height"] <= 740
    assert serious(page) == []


def test_a_long_album_name_fits_on_a_phone(own: str, open_page: Opener) -> None:
    page = open_page(at=own, has_touch=True)
    page.set_viewport_size({"width": 390, "height": 844})
    settled(page)
    album = "The birthday party of our grandmother with everybody and the dogs"
    pick(page, 0)
    page.get_by_role("button", name="Add to album").click()
    page.locator("#album-name").fill(album)
    page.get_by_role("button", name="Add", exact=True).click()
    toast = page.locator("#toast")
    expect(toast).to_contain_text(album)
    assert toast.evaluate("place => place.offsetWidth") > 300
    page.goto(f"{own}/?album={album}")
    pick(page, 0)
    remove = page.get_by_role("button", name=f"Remove from {album}")
    assert remove.evaluate("button => button.offsetHeight") < 45
    page.evaluate("navigator.clipboard.writeText = async () => {}")
    page.get_by_role("button", name="Copy paths").click()
    expect(toast).to_have_text("1 path copied")
    told, bar = toast.bounding_box(), page.locator("#selected").bounding_box()
    assert told
    assert bar
    assert told["y"] + told["height"] <= bar["y"]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_two_dates_stay_side_by_side_beside_an_album(open_page: Opener, width: int) -> None:
    page = open_page("?album=Zoo")
    page.set_viewport_size({"width": width, "height": 844})
    settled(page)
    expect(page.locator("#album")).to_be_visible()
    start, end = page.locator("#from").bounding_box(), page.locator("#to").bounding_box()
    assert start
    assert end
    assert start["y"] == end["y"]
