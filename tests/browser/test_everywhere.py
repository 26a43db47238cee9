"""The page in the dark, on a phone, for a screen reader, behind a token, and without its server."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from browser.conftest import SHOWN, Opener
from browser.page import first, named, search, settled, tiles, word
from server.served import Served, served
from sightline.server.app import create_app
from sightline.server.run import ServedCollection

COUNT = sum(map(len, SHOWN.values()))
TOKEN = "correct horse battery staple"


def background(page: Page) -> int:
    """How light the page is, 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(re.findall(r"\d+", colour)[0])


def test_the_page_is_dark_where_the_system_is_unless_it_was_told_otherwise(open_page: Opener) -> None:
    page = open_page(color_scheme="dark")
    assert background(page) < 50
    theme = page.get_by_role("button", name="Dark")
    expect(theme).to_have_attribute("aria-pressed", "true")
    theme.click()
    expect(theme).to_have_attribute("aria-pressed", "false")
    assert background(page) > 200
    page.reload()
    assert background(page) > 200
    settled(page)


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_a_phone_needs_no_scrolling_sideways(open_page: Opener) -> None:
    page = open_page(color_scheme="light", has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    settled(page)
    assert overflow(page) == 0
    page.get_by_role("button", name="Filters").tap()
    assert overflow(page) == 0
    search(page, "drums and a guitar")
    assert overflow(page) == 0
    boxes = [box for box in (one.bounding_box() for one in tiles(page).all()) if box]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes)
    first(page).tap()
    word(page, "guitar").tap()
    expect(page.locator("#heat")).to_be_visible()
    assert page.evaluate("document.querySelector('#viewer').scrollWidth") <= 360
    for name in ("Close", "Next", "guitar"):
        found = page.get_by_role("button", name=name, exact=True).bounding_box()
        assert found
        assert found["x"] + found["width"] <= 360
        assert found["y"] + found["height"] <= 740


def test_rows_fill_the_window_and_keep_the_proportions_of_pictures(open_page: Opener) -> None:
    page = settled(open_page("?q=an+animal"))
    boxes = [box for box in (one.bounding_box() for one in tiles(page).all()) if box]
    top = [box for box in boxes if box["y"] == boxes[0]["y"]]
    assert len(top) >= 2
    assert {round(box["height"]) for box in top} == {round(top[0]["height"])}
    edge = top[0]["x"]
    assert top[-1]["x"] + top[-1]["width"] == pytest.approx(1200 - edge, abs=1)
    expect(first(page).locator("img")).to_have_class(re.compile("is-there"))
    natural = first(page).locator("img").evaluate("image => image.naturalWidth / image.naturalHeight")
    assert top[0]["width"] / top[0]["height"] == pytest.approx(natural, abs=0.02)


def serious(page: Page) -> list[str]:
    """What axe holds against the page as it is, in light and in dark."""
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for wrong in Axe().run(page).response["violations"]:
            if wrong["impact"] in ("serious", "critical"):
                found.append(f"{scheme} {wrong['id']}: {[node['html'] for node in wrong['nodes']]}")
    return found


def test_nothing_serious_stands_in_the_way_of_anybody(open_page: Opener) -> None:
    page = settled(open_page())
    assert serious(page) == []
    page.get_by_role("button", name="Filters").click()
    search(page, "drums and a guitar")
    assert serious(page) == []
    first(page).click()
    word(page, "guitar").focus()
    expect(page.locator("#heat")).to_be_visible()
    assert serious(page) == []
    page.keyboard.press("Escape")
    search(page, "people playing football in a stadium")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("match"))
    assert serious(page) == []


def test_a_list_of_texts_stands_in_nobodys_way_either(open_page: Opener, texts_address: str) -> None:
    assert serious(settled(open_page("?q=a+dog", at=texts_address))) == []


def test_a_token_is_asked_for_once_and_opens_everything(
    open_page: Opener, opened: ServedCollection, allowed: list[str]
) -> None:
    allowed.append("status of 401")
    with served(create_app(opened.service, token=TOKEN)) as address:
        page = open_page("?q=a+dog", at=address)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("This server needs a token")
        assert serious(page) == []
        page.get_by_role("textbox", name="Token").fill("a guess")
        page.get_by_role("button", name="Continue").click()
        expect(dialog.get_by_role("alert")).to_have_text("Wrong token.")
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.get_by_role("button", name="Continue").click()
        expect(dialog).to_be_hidden()
        expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
        expect(first(page).locator("img")).to_have_class(re.compile("is-there"))
        page.reload()
        expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
        expect(dialog).to_be_hidden()
        page.context.close()


def test_a_server_that_is_gone_is_said_to_be_and_found_again(
    open_page: Opener, opened: ServedCollection, allowed: list[str]
) -> None:
    allowed.append("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    server = Served(create_app(opened.service)).start()
    page = settled(open_page(at=server.address))
    server.stop()
    page.get_by_label("What to find").fill("a dog")
    banner = page.get_by_role("alert").filter(has_text="The server cannot be reached")
    expect(banner).to_be_visible()
    expect(tiles(page)).to_have_count(COUNT)  # what was there stays
    server.start()
    expect(banner).to_be_hidden()
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
    settled(page)
    page.context.close()
    server.stop()


def test_what_the_server_refuses_is_told_with_the_way_out(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 422")
    page = settled(open_page())
    answer = {"status": 422, "detail": "the query is odd", "way_out": "Ask something else."}
    page.route("**/v1/search*", lambda route: route.fulfill(status=422, json=answer))
    page.get_by_label("What to find").fill("a dog")
    expect(page.locator("#message")).to_contain_text("The query is odd.")
    expect(page.locator("#message")).to_contain_text("Ask something else.")
    page.unroute("**/v1/search*")
    page.get_by_role("button", name="Try again").click()
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))


def test_a_busy_server_is_asked_again_when_it_says_so(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 503")
    page = settled(open_page())
    turned_away = iter([True])
    page.route(
        "**/v1/search*",
        lambda route: (
            route.fulfill(status=503, headers={"Retry-After": "0"}, json={"detail": "busy"})
            if next(turned_away, False)
            else route.continue_()
        ),
    )
    search(page, "a dog")
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))


def test_a_picture_that_is_gone_is_named_in_its_place(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 404")
    page = open_page()
    settled(page)
    page.route("**/thumbnail*", lambda route: route.fulfill(status=404))
    page.context.clear_cookies()
    page.goto(f"{page.url}?q=a+dog")
    expect(page.get_by_alt_text("dog.jpg cannot be shown")).to_be_visible()
