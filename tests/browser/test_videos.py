"""Videos on the page: a hit opens at the second that was found, on a desk and on a phone."""

import time
from collections.abc import Iterator

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

import sightline
from browser.conftest import LIMITS, PATIENCE_MS, Opener
from browser.page import first, named, search, serious, settled, tiles
from server.served import opening, served
from sightline.demo import PICTURES
from sightline.server.app import create_app
from sightline.server.run import ServedCollection

pytest.importorskip("av", reason="the extra video is not installed")

from media.video_files import film

TIME = "video => video.seeking || video.readyState < 2 ? -1 : video.currentTime"


def shown(name: str) -> Image.Image:
    with Image.open(PICTURES / f"{name}.jpg") as image:
        return image.convert("RGB").resize((320, 240))


@pytest.fixture(scope="module")
def videos(opened: ServedCollection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where three videos, each with three scenes, and a picture are served."""
    folder = tmp_path_factory.mktemp("videos")
    film(folder / "farm.mp4", [shown(name) for name in ("coffee", "horses", "owl")])
    film(folder / "trip.webm", [shown(name) for name in ("castle-on-the-water", "great-wall", "astronaut")])
    film(folder / "pets.mov", [shown(name) for name in ("kitten-in-a-box", "fig-in-a-bowl", "dog")])
    film(folder / "old.avi", [shown("drums-and-guitar")], 1)
    shown("kingfisher").save(folder / "bird.jpg")
    sightline.index(folder, model=opened.model)
    with opening(folder, LIMITS) as found, served(create_app(found.service)) as address:
        yield address


def plays_at(page: Page, seconds: float) -> None:
    """Wait until the video shows some second."""
    video = page.locator("#viewer-video")
    expect(video).to_be_visible()
    end = time.monotonic() + PATIENCE_MS / 1000
    while not abs(video.evaluate(TIME) - seconds) < 0.5:
        assert time.monotonic() < end, video.evaluate(TIME)
        page.wait_for_timeout(50)


@pytest.mark.parametrize(
    ("words", "name", "seconds"),
    [("horses on a meadow", "farm.mp4", 3), ("an astronaut", "trip.webm", 6), ("a dog", "pets.mov", 6)],
)
def test_a_hit_opens_at_the_moment_that_was_found(
    videos: str, open_page: Opener, words: str, name: str, seconds: float
) -> None:
    page = search(settled(open_page(at=videos)), words)
    expect(first(page)).to_have_attribute("aria-label", named(f"{name}, video, at 0:0{seconds}"))
    expect(page.locator("#likely .video-time").first).to_have_text(f"▶ 0:0{seconds}")
    first(page).click()
    plays_at(page, seconds)
    expect(page.locator("#viewer-name")).to_have_text(name)
    expect(page.locator("#viewer-facts")).to_contain_text("Video, 0:09")
    expect(page.locator(".moment")).to_have_count(3)
    page.get_by_role("button", name="Go to 0:00").click()
    plays_at(page, 0)


def test_the_viewer_leaves_keys_to_the_player_and_stops_it_when_closed(videos: str, open_page: Opener) -> None:
    page = search(settled(open_page(at=videos)), "horses on a meadow")
    first(page).click()
    plays_at(page, 3)
    assert serious(page) == []
    page.locator("#viewer-video").focus()
    page.keyboard.press("ArrowRight")  # moves the video, and not to the next result
    expect(page.locator("#viewer-name")).to_have_text("farm.mp4")
    page.locator("#viewer-name").click()
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#viewer-name")).not_to_have_text("farm.mp4")
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    assert page.locator("#viewer-video").get_attribute("src") is None


def test_all_moments_are_listed_where_nothing_was_asked_for_and_pictures_have_none(
    videos: str, open_page: Opener
) -> None:
    page = settled(open_page(at=videos))
    expect(page.locator("#heading")).to_have_text("5 pictures")
    expect(page.locator(".timeline .video-time")).to_have_count(5)
    expect(page.locator(".timeline .video-time:visible")).to_have_count(4)
    page.get_by_role("button", name=named("pets.mov, video")).click()
    expect(page.locator("#viewer-video")).to_be_visible()
    expect(page.locator(".moment")).to_have_count(3)
    page.keyboard.press("Escape")
    page.get_by_role("button", name=named("bird.jpg")).click()
    expect(page.locator("#viewer-image")).to_be_visible()
    expect(page.locator("#viewer-video")).to_be_hidden()
    expect(page.locator("#viewer-moments")).to_be_hidden()


def test_a_video_that_the_browser_cannot_play_shows_its_moment(videos: str, open_page: Opener) -> None:
    page = search(settled(open_page(at=videos)), "drums and a guitar")
    expect(first(page)).to_have_attribute("aria-label", named("old.avi, video"))
    first(page).click()
    expect(page.locator("#viewer-facts .wrong")).to_contain_text("cannot play this video")
    expect(page.locator("#viewer-video")).to_be_hidden()
    expect(page.locator("#viewer-image")).to_have_js_property("naturalWidth", 320)
    href = page.get_by_role("link", name="Open the file").get_attribute("href")
    assert "/video?v=" in (href or "")


def test_a_phone_opens_a_video_at_its_moment(videos: str, open_page: Opener) -> None:
    page = open_page("?q=a+dog", at=videos, has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    settled(page)
    expect(first(page)).to_have_attribute("aria-label", named("pets.mov, video, at 0:06"))
    assert serious(page) == []
    first(page).tap()
    plays_at(page, 6)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    box, next_button = page.locator("#viewer-video").bounding_box(), page.locator("#viewer-next").bounding_box()
    assert box
    assert next_button
    assert next_button["y"] + next_button["height"] < box["y"] + box["height"] - 40  # the controls are below
    page.get_by_role("button", name="Go to 0:00").tap()
    plays_at(page, 0)
    assert serious(page) == []
    assert tiles(page).count() > 0
