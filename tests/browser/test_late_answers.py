"""A slow or failing server: late answers change nothing that is newer, and what fails is told."""

import re

from playwright.sync_api import Route, expect

from browser.conftest import Opener
from browser.page import Held, first, named, put, search, settled, tiles, word
from browser.test_browsing import pretend
from server.served import served
from sightline.demo import PICTURES
from sightline.server.app import create_app
from sightline.server.run import ServedCollection


def test_results_that_were_left_and_come_back_are_not_covered_by_the_timeline(open_page: Opener) -> None:
    page = search(settled(open_page()), "a dog")
    shown = tiles(page).count()
    late = Held(page, r"/v1/timeline")
    page.locator("#home").click()
    late.wait_for()
    late.routes.pop(0).continue_()
    page.wait_for_timeout(300)
    page.go_back()
    settled(page)
    late.let_go()
    page.wait_for_load_state("networkidle")
    expect(page.locator("#timeline")).to_be_hidden()
    assert tiles(page).count() == shown


def test_a_timeline_that_was_left_and_comes_back_shows_its_own_pictures(open_page: Opener) -> None:
    page = settled(open_page("?folder=animals"))
    expect(tiles(page)).to_have_count(8)
    late = Held(page, r"/v1/timeline/items")
    page.locator("#folder").select_option("trips/2021")
    late.wait_for()
    page.go_back()
    settled(page)
    late.let_go()
    page.wait_for_load_state("networkidle")
    expect(tiles(page)).to_have_count(8)


def test_a_search_that_was_left_keeps_its_words_and_phrases(open_page: Opener) -> None:
    page = search(settled(open_page()), "a castle in 2021")
    expect(page.locator("#phrases button")).to_have_text("in 2021 ×")
    late = Held(page, r"/v1/search")
    words = page.get_by_label("What to find")
    words.fill("a red owl")
    late.wait_for()
    words.fill("a castle in 2021")
    settled(page)
    late.let_go()
    expect(page.locator("#phrases button")).to_have_text("in 2021 ×")
    first(page).click()
    expect(word(page, "castle")).to_be_visible()


def test_closing_twice_goes_back_once(open_page: Opener) -> None:
    page = settled(open_page("?folder=animals"))
    page.get_by_label("What to find").fill("a dog")
    page.get_by_label("What to find").press("Enter")
    expect(page).to_have_url(re.compile("q=a"))
    settled(page)
    first(page).click()
    expect(page.locator("#viewer")).to_be_visible()
    page.locator("#viewer-close").dblclick()
    expect(page.locator("#viewer")).to_be_hidden()
    page.wait_for_timeout(500)
    expect(page.get_by_label("What to find")).to_have_value("a dog")
    first(page).click()
    expect(page.locator("#viewer")).to_be_visible()
    page.evaluate("for (const _ of [1, 2]) document.querySelector('#viewer-close').click()")
    expect(page.locator("#viewer")).to_be_hidden()
    page.wait_for_timeout(500)
    expect(page.get_by_label("What to find")).to_have_value("a dog")


def test_a_selection_that_was_cleared_stays_clear(open_page: Opener, address: str) -> None:
    page = settled(open_page())
    pretend(page, 2_000)
    page.goto(address)
    settled(page)
    late = Held(page, r"/v1/timeline/items\?start=1900")
    page.keyboard.press("Control+a")
    late.wait_for()
    page.keyboard.press("Escape")
    for route in late.routes:
        route.fallback()
    page.wait_for_timeout(500)
    expect(page.locator("#selected")).to_be_hidden()


def test_a_picture_that_loads_late_takes_no_focus_from_the_words(open_page: Opener, address: str) -> None:
    page = settled(open_page())
    pretend(page, 2_000)
    page.goto(address)
    settled(page)
    late = Held(page, r"/v1/timeline/items\?start=1900")
    words = page.get_by_label("What to find")
    words.press("ArrowDown")
    expect(first(page)).to_be_focused()
    page.keyboard.press("End")
    late.wait_for()
    words.focus()
    for route in late.routes:
        route.fallback()
    expect(page.locator('#timeline .tile[data-id="2000"]')).to_be_visible()
    expect(words).to_be_focused()


def test_the_star_is_known_where_the_camera_is_not(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 500")
    page = settled(open_page())

    def starred(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "albums": ["Favourites"]})

    page.route(re.compile(r"/v1/items/\d+$"), starred)
    page.route(re.compile(r"/camera$"), lambda route: route.fulfill(status=500, json={"detail": "unreadable"}))
    first(page).click()
    page.wait_for_timeout(500)
    expect(page.locator("#viewer-star")).to_have_attribute("aria-pressed", "true")


def test_a_token_is_still_asked_for_after_escape(
    open_page: Opener, opened: ServedCollection, allowed: list[str]
) -> None:
    allowed.append("status of 401")
    with served(create_app(opened.service, token="t" * 20)) as address:
        page = open_page("?q=a+dog", at=address)
        dialog = page.locator("#token")
        expect(dialog).to_be_visible()
        for _ in range(3):
            page.keyboard.press("Escape")
        page.wait_for_timeout(300)
        expect(dialog).to_be_visible()
        page.get_by_role("textbox", name="Token").fill("t" * 20)
        page.get_by_role("button", name="Continue").click()
        expect(dialog).to_be_hidden()
        expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
        page.context.close()


SLOW_FIRST = """(() => {
    const real = createImageBitmap;
    let count = 0;
    globalThis.createImageBitmap = async (...given) => {
        count += 1;
        if (count === 1) await new Promise((resolve) => { globalThis.goOn = resolve; });
        return real(...given);
    };
})()"""


def test_of_two_pictures_the_later_one_counts(open_page: Opener) -> None:
    page = settled(open_page())
    page.evaluate(SLOW_FIRST)
    put(page, "drop")
    put(page, "drop", PICTURES / "dog.jpg")
    expect(page.locator("#chip-name")).to_have_text("dog.jpg")
    page.evaluate("goOn()")
    page.wait_for_timeout(500)
    expect(page.locator("#chip-name")).to_have_text("dog.jpg")


def test_an_answer_that_cannot_be_read_is_told(open_page: Opener) -> None:
    page = settled(open_page())
    page.route("**/v1/search?*", lambda route: route.fulfill(body="<html>", content_type="text/html"))
    page.get_by_label("What to find").fill("a dog")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))


def test_phrases_are_found_once_the_server_is_back(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("ERR_FAILED")
    page = settled(open_page())
    page.route(re.compile("/v1/(understand|search)|/healthz"), lambda route: route.abort())
    page.get_by_label("What to find").fill("a castle in 2021")
    expect(page.locator("#banner")).to_be_visible()
    page.unroute_all()
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#phrases button")).to_have_text("in 2021 ×")


def test_a_filter_that_is_not_offered_stays_chosen(open_page: Opener) -> None:
    page = open_page("?q=a+dog&album=Gone")
    expect(page.locator("#folder option")).not_to_have_count(1)
    expect(page.locator("#album")).to_have_value("Gone")


def test_filters_follow_the_history_while_they_have_the_focus(open_page: Opener) -> None:
    page = settled(open_page("?folder=animals"))
    expect(page.locator("#folder option")).not_to_have_count(1)
    page.locator("#folder").focus()
    page.locator("#folder").select_option("trips/2021")
    expect(tiles(page)).to_have_count(1)
    page.go_back()
    expect(tiles(page)).to_have_count(8)
    expect(page.locator("#folder")).to_have_value("animals")


def test_a_failing_timeline_found_by_words_is_told(open_page: Opener, address: str, allowed: list[str]) -> None:
    allowed.append("status of 500")
    page = settled(open_page())
    pretend(page, 2_000)
    page.route(re.compile(r"start=1900"), lambda route: route.fulfill(status=500, json={"detail": "no"}))
    page.goto(f"{address}/?q=2021")
    settled(page)
    expect(page.locator("#phrases button")).to_be_visible()
    page.keyboard.press("End")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_a_picture_opens_before_its_neighbours_are_loaded(open_page: Opener, address: str, allowed: list[str]) -> None:
    allowed.append("status of 404")  # of what only the page believes in
    page = settled(open_page())
    pretend(page, 200)
    late = Held(page, r"/v1/timeline/items\?start=100")
    page.goto(address)
    settled(page)
    page.get_by_label("Jump to a date").select_option("2026-11")
    page.locator('#timeline .tile[data-id="100"] .open').click()
    expect(page.locator("#viewer-name")).to_have_text("100.jpg")
    for route in late.routes:
        route.fallback()
    expect(page.locator("#viewer-next")).to_be_enabled()


def test_more_results_keep_the_focus_on_the_button(open_page: Opener) -> None:
    page = settled(open_page())

    def many(route: Route) -> None:
        found = route.fetch(url=re.sub(r"&(k|start)=\d+", "", route.request.url)).json()
        start = int((re.search(r"start=(\d+)", route.request.url) or ["", "0"])[1])
        hits = [{**found["hits"][0], "id": 1000 + start + n, "relevance": 0.9} for n in range(60)]
        route.fulfill(json={**found, "hits": hits if start < 120 else hits[:20]})

    page.route(re.compile(r"/v1/search\?"), many)
    late, last = Held(page, "start=60"), Held(page, "start=120")
    page.get_by_label("What to find").fill("a dog")
    settled(page)
    more = page.get_by_role("button", name="Show more")
    more.focus()
    late.wait_for()
    page.wait_for_timeout(300)
    expect(more).to_be_focused()
    for route in late.routes:
        route.fallback()
    expect(tiles(page)).to_have_count(120)
    expect(more).to_be_focused()
    more.press("Enter")  # if the page has not asked for more by itself
    last.wait_for()
    for route in last.routes:
        route.fallback()
    expect(more).to_be_hidden()
    expect(tiles(page).last).to_be_focused()


def test_retrying_ends_once_another_search_was_answered(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("ERR_FAILED")
    page = settled(open_page())
    up = Held(page, "/healthz")
    page.route(re.compile("/v1/search"), lambda route: route.abort())
    page.get_by_label("What to find").fill("a dog")
    up.wait_for()
    page.unroute(re.compile("/v1/search"))
    search(page, "an owl")
    expect(page.locator("#banner")).to_be_hidden()
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    up.let_go()
    page.wait_for_timeout(1000)
    assert not [one for one in seen if "/v1/" in one], seen


def test_details_that_come_late_change_no_star(open_page: Opener) -> None:
    page = settled(open_page())
    page.route("**/v1/albums/Favourites", lambda route: route.fulfill(json={}))
    first(page).click()
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    late = Held(page, r"/v1/items/\d+$")
    first(page).click()
    late.wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    late.holds = False
    first(page).click()
    star = page.locator("#viewer-star")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    with page.expect_response(re.compile(r"/v1/items/\d+$")):
        late.let_go()
    page.wait_for_timeout(300)
    expect(star).to_have_attribute("aria-pressed", "true")


def test_a_token_that_cannot_be_sent_is_told(open_page: Opener, opened: ServedCollection, allowed: list[str]) -> None:
    allowed.append("status of 401|ERR_FAILED")
    with served(create_app(opened.service, token="t" * 20)) as address:
        page = open_page(at=address)
        page.route("**/v1/session", lambda route: route.abort())
        page.get_by_role("textbox", name="Token").fill("t" * 20)
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#token-wrong")).to_have_text("The server cannot be reached.")
        page.context.close()
