"""Browsing on the page: a timeline of any length, months to jump to, the keyboard, and the enlarged view."""

import io
import re
import time
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page, Route, expect

import sightline
from browser.conftest import LIMITS, Opener
from browser.page import first, named, put, settled, tiles
from server.served import opening, served
from sightline.demo import PICTURES
from sightline.server.app import create_app
from sightline.server.run import ServedCollection

MANY, FEW = 20_000, 200
MOST_DRAWN = 400  # tiles in the document, however many there are


@cache
def made_up(count: int) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Items that only the page believes in, and their months: a hundred a month."""
    items, months = [], []
    for month in range(-(-count // 100)):
        name = f"{2026 - month // 12}-{12 - month % 12:02}"
        own = min(100, count - 100 * month)
        months.append({"month": name, "items": own})
        for number in range(own):
            id = 100 * month + number + 1
            address = "/v1/items/1/thumbnail?v=0000000000000000"  # one for all: each request takes milliseconds here
            items.append({"id": id, "path": f"{name}/{id}.jpg", "copies": [], "width": 3, "height": 2,
                          "taken": f"{name}-01T00:00:00", "image": address, "thumbnail": address})  # fmt: skip
    return items, months


def pretend(page: Page, count: int) -> None:
    """Answer for a collection of so many pictures."""
    items, months = made_up(count)
    file = io.BytesIO()
    Image.new("RGB", (3, 2), "teal").save(file, "JPEG")

    def some(route: Route) -> None:
        start = int((re.search(r"start=(\d+)", route.request.url) or ["", "0"])[1])
        route.fulfill(json={"total": count, "start": start, "items": items[start : start + 100]})

    page.route(re.compile(r"/v1/timeline(\?|$)"), lambda route: route.fulfill(json={"total": count, "months": months}))
    page.route(re.compile(r"/v1/timeline/items"), some)
    page.route(re.compile(r"/thumbnail"), lambda route: route.fulfill(body=file.getvalue(), content_type="image/jpeg"))


def painted(page: Page, address: str, count: int) -> float:
    """Seconds until the first tiles are there."""
    pretend(page, count)
    began = time.perf_counter()
    page.goto(address)
    expect(first(page)).to_be_visible()
    spent = time.perf_counter() - began
    page.goto("about:blank")
    page.unroute_all()
    return spent


def test_twenty_thousand_pictures_come_as_quickly_as_two_hundred_and_take_no_more_room(
    open_page: Opener, address: str
) -> None:
    page = settled(open_page())
    spent = [(painted(page, address, FEW), painted(page, address, MANY)) for _ in range(5)]
    few, many = (min(times) for times in zip(*spent, strict=True))
    assert many < 1.5 * few + 0.1, (few, many)
    pretend(page, MANY)
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_have_text("20,000 pictures")
    client = page.context.new_cdp_session(page)

    def heap() -> float:
        client.send("HeapProfiler.collectGarbage")
        return float(client.send("Runtime.getHeapUsage")["usedSize"]) / 1e6

    sizes = []
    height = page.evaluate("document.documentElement.scrollHeight")
    for step, share in enumerate(np.linspace(0.02, 1, 30)):
        page.evaluate("top => scrollTo(0, top)", share * height)
        expect(page.locator("#timeline .tile[data-id]").first).to_be_visible()
        assert page.locator("#timeline .tile").count() < MOST_DRAWN
        if step % 3 == 2:
            sizes.append(heap())
    assert max(sizes[5:]) < max(sizes[:5]) + 5, sizes
    expect(page.locator(f'#timeline .tile[data-id="{MANY}"]')).to_be_visible()


def test_a_month_can_be_jumped_to(open_page: Opener, address: str) -> None:
    page = settled(open_page())
    pretend(page, 2_000)
    page.goto(address)
    page.get_by_label("Jump to a date").select_option("2025-10")
    heading = page.get_by_role("heading", level=2, name="October 2025")
    expect(heading).to_be_in_viewport()
    expect(page.locator('#timeline .tile[data-id="1401"]')).to_be_in_viewport()


def test_keys_reach_pictures_that_are_not_drawn_yet(open_page: Opener, address: str) -> None:
    page = settled(open_page())
    pretend(page, 2_000)
    page.goto(address)
    settled(page)
    page.get_by_label("What to find").press("ArrowDown")
    expect(first(page)).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator('#timeline .tile[data-id="2000"] .open')).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator('#timeline .tile[data-id="1999"] .open')).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator('#timeline .tile[data-id="1"] .open')).to_be_focused()
    top = page.evaluate("document.activeElement.getBoundingClientRect().top")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") > top


@pytest.fixture(scope="module")
def placed(opened: ServedCollection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where three photos with a place and a camera are served, in two roots."""
    folder = tmp_path_factory.mktemp("placed")
    for number, name in enumerate(("owl", "dog", "coffee")):
        exif = Image.Exif()
        exif[0x010F], exif[0x0110] = "Canon", "Canon EOS R5"
        exif.get_ifd(0x8769).update({0x9003: f"2023:08:0{number + 1} 10:00:00", 0x829A: 0.004, 0x829D: 2.8})
        exif.get_ifd(0x8825).update({1: "S", 2: (33.0, 51.0, 0.0), 3: "E", 4: (151.0, 12.0, 0.0)})
        place = folder / ("First" if number else "Second")
        place.mkdir(exist_ok=True)
        with Image.open(PICTURES / f"{name}.jpg") as image:
            image.save(place / f"{name}.jpg", exif=exif)
    sightline.index([folder / "First", folder / "Second"], at=folder / "First", model=opened.model)
    with opening(folder / "First", LIMITS) as found, served(create_app(found.service)) as where:
        yield where


def test_the_enlarged_view_tells_place_and_camera_zooms_and_goes_on(open_page: Opener, placed: str) -> None:
    page = settled(open_page(at=placed))
    first(page).click()
    expect(page.locator("#viewer-name")).to_have_text("coffee.jpg")
    expect(page.locator("#viewer-camera span")).to_have_text(["Canon EOS R5", "1/250 s", "f/2.8"])
    expect(page.locator("#map-place")).to_have_text("33.8500° S, 151.2000° E")
    expect(page.get_by_role("img", name="Taken at 33.8500° S, 151.2000° E")).to_be_visible()
    frame = page.locator("#frame")
    before = frame.bounding_box()
    page.keyboard.press("+")
    after = frame.bounding_box()
    assert before
    assert after
    assert after["width"] == pytest.approx(1.4 * before["width"], rel=0.02)
    page.keyboard.press("0")
    assert frame.bounding_box() == before
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-name")).to_have_text("dog.jpg")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-name")).to_have_text("owl.jpg")
    expect(page.locator("#viewer-facts")).to_contain_text("Second")
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.locator("#timeline").get_by_role("button", name=named("owl.jpg"))).to_be_focused()


SWIPE = """([from, to]) => {
    const fit = document.querySelector("#fit");
    const touch = (type, x) => fit.dispatchEvent(new PointerEvent(type, {
        pointerId: 7, pointerType: "touch", clientX: x, clientY: 300, bubbles: true }));
    touch("pointerdown", from); touch("pointermove", to); touch("pointerup", to);
}"""


def test_a_swipe_leads_to_the_next_picture_on_a_phone(open_page: Opener, placed: str) -> None:
    page = open_page(at=placed, has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    first(settled(page)).tap()
    expect(page.locator("#viewer-name")).to_have_text("coffee.jpg")
    page.evaluate(SWIPE, [300, 100])
    expect(page.locator("#viewer-name")).to_have_text("dog.jpg")
    page.evaluate(SWIPE, [100, 300])
    expect(page.locator("#viewer-name")).to_have_text("coffee.jpg")


def test_a_second_root_can_be_chosen_among_the_folders(open_page: Opener, placed: str) -> None:
    page = settled(open_page(at=placed))
    page.get_by_role("button", name="Filters").click()
    folder = page.get_by_label("Folder")
    expect(folder.locator("option")).to_have_text(["Any folder", "First (2)", "Second (1)"])
    folder.select_option(label="Second (1)")
    expect(tiles(page)).to_have_count(1)
    expect(first(page)).to_have_attribute("aria-label", named("owl.jpg"))


def test_leaving_out_needs_a_search_and_is_not_counted_without(open_page: Opener) -> None:
    page = settled(open_page("?not=snow"))
    expect(page.get_by_role("button", name="Filters", exact=True)).to_be_visible()
    page.get_by_role("button", name="Filters").click()
    expect(page.get_by_label("Leave out")).to_be_disabled()
    page.get_by_label("What to find").fill("a dog")
    expect(page.get_by_label("Leave out")).to_be_enabled()
    settled(page)


def test_a_picture_that_the_browser_cannot_show_has_a_name_and_no_broken_icon(
    open_page: Opener, allowed: list[str]
) -> None:
    allowed.append("status of 4")
    page = settled(open_page())
    put(page, "drop", b"\0\0\0\x18ftypheic" + bytes(100), "image/heic")
    expect(page.locator("#chip-name")).to_have_text("made-up.jpg")
    expect(page.locator("#chip-image")).to_be_hidden()
    settled(page)


def test_results_go_on_while_one_scrolls(open_page: Opener) -> None:
    page = settled(open_page())

    def many(route: Route) -> None:
        found = route.fetch(url=re.sub(r"&(k|start)=\d+", "", route.request.url)).json()
        start = int((re.search(r"start=(\d+)", route.request.url) or ["", "0"])[1])
        hit = found["hits"][0]
        hits = [{**hit, "id": 1000 + start + n, "rank": start + n + 1, "relevance": 0.9} for n in range(60)]
        route.fulfill(json={**found, "hits": hits if start < 300 else []})

    page.route(re.compile(r"/v1/search\?"), many)
    page.route(re.compile(r"/thumbnail"), lambda route: route.fulfill(path=PICTURES / "dog.jpg"))
    page.get_by_label("What to find").fill("a dog")
    settled(page)
    for _ in range(40):
        page.keyboard.press("End")
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        if tiles(page).count() >= 300:
            break
        page.wait_for_timeout(200)
    expect(tiles(page)).to_have_count(300)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()


def test_dates_and_folders_in_words_are_chips_that_can_be_taken_back(open_page: Opener, placed: str) -> None:
    page = settled(open_page(at=placed))
    page.get_by_label("What to find").fill("a dog in August 2023")
    chip = page.locator("#phrases button")
    expect(chip).to_have_text("in August 2023 ×")
    expect(page).to_have_url(re.compile(r"q=a\+dog\+in\+August\+2023$"))
    settled(page)
    expect(tiles(page)).to_have_count(3)
    with page.expect_response(re.compile(r"/v1/search\?q=a\+dog\+in\+August\+2023")):
        chip.click()
    expect(chip).to_have_count(0)
    page.get_by_label("What to find").fill("2023-08-02")
    expect(chip).to_have_text("2023-08-02 ×")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 picture")
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
    page.get_by_label("What to find").fill("a dog in August 1999")
    settled(page)
    expect(chip).to_have_count(0)
    expect(page.locator("#phrases")).to_have_text("No pictures match “in August 1999”.")
    page.get_by_label("What to find").fill("photos from August 2023")
    expect(chip).to_have_text("from August 2023 ×")
    expect(page.get_by_role("heading", level=1)).to_have_text("3 pictures")
    expect(page.locator("#phrases .unmatched")).to_have_count(0)


def test_chips_fit_on_a_phone_and_stand_in_nobodys_way(open_page: Opener, placed: str) -> None:
    page = open_page("?q=an+owl+in+August+2023", at=placed, has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    settled(page)
    expect(page.locator("#phrases button")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    found = Axe().run(page).response["violations"]
    assert [wrong["id"] for wrong in found if wrong["impact"] in ("serious", "critical")] == []
