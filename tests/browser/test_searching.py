"""Searching on the page: by words, by pictures and by both, narrowed, and in vain."""

import io
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect

from browser.conftest import SHOWN, TEXTS, Opener
from browser.page import Held, first, named, names, put, search, settled, tiles

COUNT = sum(map(len, SHOWN.values()))


def test_the_first_screen_shows_what_there_is_and_offers_searches(open_page: Opener) -> None:
    page = settled(open_page())
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{COUNT} pictures")
    expect(tiles(page)).to_have_count(COUNT)
    example = page.locator("#examples button").first
    words = example.text_content() or ""
    example.click()
    expect(page.locator("#likely .tile").first).to_be_visible()
    expect(page.get_by_label("What to find")).to_have_value(words)
    expect(page.locator("#examples")).to_be_hidden()
    page.get_by_role("link", name="Sightline").click()
    settled(page)
    Held(page, "/v1/search")
    for words, is_shown in (("a", False), ("", True)):  # taken back before there was an answer
        page.get_by_label("What to find").fill(words)
        expect(page.locator("#examples")).to_be_visible(visible=is_shown)
    expect(tiles(page)).to_have_count(COUNT)


def test_typing_searches_and_says_how_sure_it_is_and_what_took_how_long(open_page: Opener) -> None:
    page = open_page()
    page.get_by_label("What to find").press_sequentially("a kitten playing with yarn", delay=5)
    expect(first(page)).to_have_attribute("aria-label", re.compile(r"^kitten-with-yarn.jpg, \d\d% likely$"))
    settled(page)
    expect(page.locator("#status")).to_have_text(re.compile(r"^\d+ match(es)?$"))
    expect(page.get_by_role("heading", level=1)).to_have_attribute(
        "title", re.compile(r"^\d+ ms: encode [\d.]+ ms, retrieve [\d.]+ ms, rerank [\d.]+ ms$")
    )
    expect(tiles(page)).to_have_count(COUNT)
    assert page.locator("#unlikely .tile").count() > COUNT / 2
    assert page.title() == "a kitten playing with yarn – Sightline"


def owl_first(route: Route) -> None:
    """Answer as the server does, but with the owl in front."""
    answer = route.fetch().json()
    hits = sorted(answer["hits"], key=lambda hit: hit["path"].rpartition("/")[2] != "owl.jpg")
    route.fulfill(json={**answer, "hits": [{**hit, "relevance": 0.5} for hit in hits]})


def test_a_quick_answer_comes_first_and_is_put_in_order_without_flicker(open_page: Opener) -> None:
    page = settled(open_page())
    held = Held(page, r"/v1/search\?(?!.*rerank=0)")
    page.route(re.compile(r"/v1/search\?.*rerank=0"), owl_first)
    page.get_by_label("What to find").fill("drums and a guitar")
    expect(first(page)).to_have_attribute("aria-label", "owl.jpg, 50% likely")
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#progress")).to_be_visible()
    first(page).evaluate("one => { one.isTheSame = true; }")
    expect(page.locator("#status")).to_have_text(f"{COUNT} pictures")  # not said aloud yet
    held.let_go()
    expect(first(page)).to_have_attribute("aria-label", named("drums-and-guitar.jpg"))
    settled(page)
    owl = page.get_by_role("button", name=named("owl.jpg"))
    assert owl.evaluate("one => one.isTheSame") is True


def test_an_answer_that_comes_too_late_is_dropped(open_page: Opener) -> None:
    page = settled(open_page())
    held = Held(page, r"/v1/search\?q=a\+dog&")
    page.get_by_label("What to find").fill("a dog")
    expect(page.locator("#progress")).to_be_visible()
    search(page, "a bird")
    expect(first(page)).to_have_attribute("aria-label", re.compile("kingfisher|owl"))
    assert len(held.routes) == 1
    held.let_go()
    page.get_by_label("What to find").press("Enter")
    settled(page)
    expect(first(page)).to_have_attribute("aria-label", re.compile("kingfisher|owl"))
    expect(page.get_by_label("What to find")).to_have_value("a bird")


def test_where_nothing_is_yet_skeletons_show_what_will_be(open_page: Opener) -> None:
    for motion, moves in (("reduce", False), ("no-preference", True)):
        page = open_page(reduced_motion=motion)
        settled(page)
        held = Held(page, r"/v1/timeline\?")
        page.reload()
        expect(page.locator(".skeleton").first).to_be_visible()
        assert bool(page.evaluate("document.getAnimations().length")) is moves
        held.let_go()
        expect(page.locator(".skeleton")).to_have_count(0)


@pytest.mark.parametrize("way", ["drop", "paste", "pick"])
def test_a_picture_finds_those_like_it(open_page: Opener, way: str) -> None:
    page = settled(open_page())
    if way == "pick":
        from sightline.demo import PICTURES

        with page.expect_file_chooser() as choosing:
            page.get_by_role("button", name="Search by a picture").click()
        choosing.value.set_files(PICTURES / "cat-face.jpg")
    else:
        put(page, way)
    expect(page.locator("#chip")).to_be_visible()
    expect(first(page)).to_have_attribute("aria-label", "cat-face.jpg")  # nobody can say how likely
    if way != "paste":
        return
    search(page, "a kitten in a box")
    expect(page.locator("#chip")).to_be_visible()
    assert_joined(page)
    page.get_by_role("button", name="Search without this picture").click()
    settled(page)
    expect(page.locator("#chip")).to_be_hidden()
    expect(page.get_by_label("What to find")).to_have_value("a kitten in a box")


def assert_joined(page: Page) -> None:
    """The face of a cat and a box together: what has both comes first, and words alone rule nothing out."""
    assert {"cat-face.jpg", "kitten-in-a-box.jpg"} == set(names(page)[:2])
    expect(page.locator("#likely .tile")).to_have_count(COUNT)


def test_while_a_file_is_dragged_the_page_says_so_and_other_files_are_refused(open_page: Opener) -> None:
    page = settled(open_page())
    put(page, "dragover")
    expect(page.get_by_text("Drop a picture")).to_be_visible()
    put(page, "drop", b"no picture", "text/plain")
    expect(page.get_by_text("Drop a picture")).to_be_hidden()
    expect(page.locator("#message")).to_contain_text("made-up.jpg is not a picture.")
    page.get_by_role("button", name="Try again").click()
    expect(tiles(page)).to_have_count(COUNT)


def test_a_large_picture_is_made_small_before_it_is_sent(open_page: Opener) -> None:
    page = settled(open_page())
    file = io.BytesIO()
    Image.effect_noise((1800, 1200), 60).save(file, "PNG")
    with page.expect_request("**/v1/search") as sent:
        put(page, "drop", file.getvalue(), "image/png")
    chip = page.locator("#chip-image")
    expect(chip).to_have_js_property("naturalWidth", 1024)
    expect(chip).to_have_js_property("naturalHeight", 683)
    assert int(sent.value.all_headers()["content-length"]) < len(file.getvalue()) / 2
    settled(page)


def test_more_like_this_leaves_out_the_picture_itself_and_can_be_joined_with_words(open_page: Opener) -> None:
    page = settled(open_page("?q=a+cat+face"))
    tile = page.locator(".tile").filter(has=page.get_by_role("button", name=named("cat-face.jpg")))
    tile.hover()
    tile.get_by_role("button", name="More like cat-face.jpg").click()
    expect(page.locator("#chip")).to_contain_text("like cat-face.jpg")
    expect(page).to_have_url(re.compile(r"\?like=\d+$"))
    expect(first(page)).to_have_attribute("aria-label", re.compile("^kitten"))
    assert "cat-face.jpg" not in names(page)
    expect(page.locator("#results")).to_be_focused()
    search(page, "a kitten in a box")
    assert_joined(page)


def test_filters_narrow_what_is_found(open_page: Opener) -> None:
    page = settled(open_page("?q=a+wall+on+a+mountain"))
    page.get_by_role("button", name="Filters").click()
    folder = page.get_by_label("Folder")
    expect(folder.locator("option")).to_have_text(
        ["Any folder", "animals (8)", "animals/birds (2)", "trips (3)", "trips/2021 (1)", "trips/2023 (2)"]
    )
    folder.select_option("trips")
    expect(tiles(page)).to_have_count(3)
    page.get_by_label("Taken from").fill("2022-01-01")
    page.get_by_label("Taken from").press("Enter")
    expect(tiles(page)).to_have_count(1)
    assert names(page)[0].startswith("great-wall.jpg")
    expect(page.get_by_role("button", name="Filters, 2 set")).to_be_visible()
    asked = parse_qs(urlsplit(page.url).query)
    assert asked == {"q": ["a wall on a mountain"], "folder": ["trips"], "from": ["2022-01-01"]}
    page.get_by_role("button", name="Clear").click()
    expect(tiles(page)).to_have_count(COUNT)


def test_filters_alone_show_what_passes_them(open_page: Opener) -> None:
    page = settled(open_page("?folder=animals/birds"))
    for folder, count in (("animals/birds", 2), ("animals", 8)):
        page.get_by_label("Folder").select_option(folder)
        expect(page.get_by_role("heading", level=1)).to_have_text(f"{count} pictures")
        expect(tiles(page)).to_have_count(count)
    page.get_by_label("until").fill("2000-01-01")
    page.get_by_label("until").press("Enter")
    expect(page.locator("#message p")).to_have_text(["Nothing matches these filters.", "Change or clear the filters."])


@pytest.mark.parametrize("words", ["", "a+dog"])
def test_dates_the_wrong_way_round_are_called_so(open_page: Opener, words: str) -> None:
    page = settled(open_page(f"?q={words}&from=2023-06-02&to=2023-06-01"))
    expect(page.locator("#message p")).to_have_text(["The first date is after the last.", "Change or clear the dates."])
    page.get_by_label("Taken from").fill("2023-06-01")
    page.get_by_label("Taken from").press("Enter")
    expect(page.locator("#message p").first).to_have_text("Nothing matches these filters.")


def test_a_search_that_no_filter_lets_through_says_what_to_do(open_page: Opener) -> None:
    page = settled(open_page("?q=a+dog&to=1999-01-01"))
    expect(page.locator("#message p").nth(0)).to_have_text("Nothing matches these filters.")
    expect(page.locator("#message p").nth(1)).to_have_text("Change or clear the filters.")
    page.get_by_role("button", name="Clear").click()
    expect(tiles(page)).to_have_count(COUNT)
    expect(page.locator("#message")).to_be_hidden()


def test_a_search_that_is_too_long_is_called_so(open_page: Opener, allowed: list[str]) -> None:
    allowed.append("status of 422")
    page = settled(open_page(f"?q={'a' * 1001}"))
    expect(page.locator("#message .lead")).to_have_text("The search is too long: at most 1,000 characters.")
    expect(page.locator("#message .exact")).to_be_empty()


def test_what_is_not_wanted_is_left_out(open_page: Opener) -> None:
    page = settled(open_page("?q=a+kitten"))
    before = names(page)
    page.get_by_role("button", name="Filters").click()
    with page.expect_response(re.compile(r"not=yarn&not=wool")):
        page.get_by_label("Leave out").fill("yarn, wool")
    settled(page)
    place = [name.startswith("kitten-with-yarn") for name in before].index(True)
    after = [name.startswith("kitten-with-yarn") for name in names(page)].index(True)
    assert after > place


def answering(relevances: list[float], **more: object) -> Callable[[Route], None]:
    """Answer as the server does, but with these relevances, none for the rest, a line at 0.4, and more fields."""

    def answer(route: Route) -> None:
        found = route.fetch().json()
        chances = [*relevances, *[0.0] * COUNT]
        hits = [{**hit, "relevance": chance} for hit, chance in zip(found["hits"], chances, strict=False)]
        told = {**found, "line": 0.4, **more, "hits": hits}
        route.fulfill(json={name: value for name, value in told.items() if value is not None})

    return answer


def test_where_nothing_is_likely_the_closest_are_shown_below(open_page: Opener) -> None:
    page = settled(open_page())
    page.route(re.compile(r"/v1/search\?"), answering([0.3, 0.05]))
    search(page, "a submarine")
    expect(page.get_by_role("heading", level=1)).to_have_text("No sure matches: the closest are below")
    expect(tiles(page)).to_have_count(COUNT)
    expect(page.locator("#divider")).to_be_hidden()
    expect(page.locator("#message")).to_be_hidden()


def test_a_search_that_is_taken_back_while_it_waits_shows_the_answer_again(open_page: Opener) -> None:
    page = settled(open_page())
    page.route(re.compile(r"/v1/search\?"), answering([0.3]))
    search(page, "a submarine")
    Held(page, r"/v1/search\?q=nobody")
    page.get_by_label("What to find").fill("nobody")
    expect(page.locator("#progress")).to_be_visible()
    page.get_by_label("What to find").fill("a submarine")
    expect(page.get_by_role("heading", level=1)).to_have_text("No sure matches: the closest are below")
    expect(page.locator(".skeleton")).to_have_count(0)


@pytest.mark.parametrize(
    ("relevances", "heading", "likely"),
    [([0.9, 0.5, 0.4, 0.39], "3 matches", 3), ([0.9, 0.1], "1 match", 1), ([0.9, 0.2, 0.5], "2 matches", 2)],
)
def test_a_divider_stands_between_matches_and_the_rest(
    open_page: Opener, relevances: list[float], heading: str, likely: int
) -> None:
    page = settled(open_page())
    page.route(re.compile(r"/v1/search\?"), answering(relevances))
    search(page, "a cat")
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page.locator("#likely .tile")).to_have_count(likely)
    expect(page.locator("#unlikely .tile")).to_have_count(COUNT - likely)
    expect(page.locator("#divider")).to_be_visible()


def sixty_matches(route: Route) -> None:
    """Answer with sixty matches."""
    found = route.fetch().json()
    hits = [{**found["hits"][0], "id": 900_000 + number, "relevance": 0.9} for number in range(60)]
    route.fulfill(json={**found, "line": 0.4, "hits": hits})


def test_a_count_of_matches_says_that_there_are_more(open_page: Opener) -> None:
    page = settled(open_page())
    page.route(re.compile(r"/v1/search\?"), sixty_matches)
    further = Held(page, r"/v1/search\?.*start=60")
    search(page, "a cat")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("More than 60 matches")
    page.locator("#further").scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    further.let_go()  # the server has no more
    expect(heading).to_have_text("60 matches")


def test_a_count_of_similar_pictures_says_that_there_are_more(open_page: Opener) -> None:
    def sixty(route: Route) -> None:
        found = route.fetch().json()
        hit = {key: value for key, value in found["hits"][0].items() if key != "relevance"}
        route.fulfill(json={**found, "hits": [{**hit, "id": 900_000 + number} for number in range(60)]})

    page = settled(open_page())
    page.route(re.compile(r"/v1/items/1/similar"), sixty)
    page.goto(f"{page.url}?like=1")
    expect(page.get_by_role("heading", level=1)).to_have_text("The first 60 pictures")


def test_percentages_of_an_older_bundle_say_so(open_page: Opener) -> None:
    page = settled(open_page())
    page.route(re.compile(r"/v1/search\?"), answering([0.3], line=None, relevance_kind="older"))
    search(page, "a cat")
    expect(page.locator("#remark")).to_contain_text("older method")
    expect(page.locator("#divider")).to_be_hidden()


def test_less_than_one_in_ten_is_no_badge(open_page: Opener) -> None:
    page = settled(open_page())
    page.route(re.compile(r"/v1/search\?"), answering([0.9, 0.1, 0.09]))
    search(page, "a cat")
    shown = page.locator(".tile .relevance").evaluate_all("all => all.map(one => one.hidden ? '' : one.textContent)")
    assert shown[:3] == ["90%", "10%", ""]


def test_a_query_that_cannot_be_read_says_so_and_what_may_be_meant_can_be_chosen(open_page: Opener) -> None:
    page = settled(open_page())
    page.get_by_label("What to find").fill("🐶")
    expect(page.locator("#remark")).to_contain_text("No words to search for")
    search(page, "elefant")
    expect(page.locator("#remark")).to_have_text("Did you mean elephant?")
    page.locator("#remark").get_by_role("button", name="elephant").click()
    expect(page.get_by_label("What to find")).to_have_value("elephant")
    settled(page)
    expect(page.locator("#remark")).to_be_hidden()


def test_a_collection_of_texts_is_a_list_of_texts(open_page: Opener, texts_address: str) -> None:
    page = settled(open_page(at=texts_address))
    expect(page.get_by_role("heading", level=1)).to_have_text("5 texts")
    expect(page.locator(".tile .text")).to_have_text(TEXTS)
    search(page, "kittens and wool")
    expect(page.locator(".tile .text").first).to_have_text(TEXTS[1])
    put(page, "drop")
    expect(page.locator("#chip")).to_be_visible()
    page.get_by_label("What to find").fill("")
    settled(page)
    expect(page.locator(".tile .text").first).to_have_text(TEXTS[1])
    first(page).click()
    expect(page.locator("#viewer-text")).to_have_text(TEXTS[1])
    page.locator("#viewer-like").click()
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page.locator(".tile .text")).to_have_count(4)
