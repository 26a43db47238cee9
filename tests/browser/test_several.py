"""Several collections on one page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser.conftest import LIMITS, Filler, Opener
from browser.page import first, named, names, search, serious, settled, tiles
from server.served import opening, served
from sightline.server.app import create_app


@pytest.fixture(scope="module")
def several(fill: Filler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where two collections are served, of two and three pictures."""
    base = tmp_path_factory.mktemp("several")
    folders = [base / "Pets", base / "Trips"]
    for folder, chosen in zip(folders, (("dog", "owl"), ("great-wall", "castle-on-the-water", "coffee")), strict=True):
        folder.mkdir()
        fill(folder, chosen)
    with opening(folders, LIMITS) as found, served(create_app(found.service)) as address:
        yield address


@pytest.mark.parametrize("width", [1200, 360])
def test_all_collections_are_browsed_searched_and_filtered(several: str, open_page: Opener, width: int) -> None:
    page = open_page(at=several)
    page.set_viewport_size({"width": width, "height": 800})
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("5 pictures of 2 collections")
    expect(tiles(page)).to_have_count(5)
    search(page, "an old castle beside a river")
    expect(first(page)).to_have_attribute("aria-label", named("castle-on-the-water.jpg"))
    search(page, "a dog")
    expect(first(page)).to_have_attribute("aria-label", named("dog.jpg"))
    first(page).click()
    expect(page.locator("#viewer-facts")).to_contain_text("Pets")
    assert serious(page) == []
    page.keyboard.press("Escape")
    page.locator("#more").click()
    expect(page.locator("#folder option")).to_have_text(["Any folder", "Pets (2)", "Trips (3)"])
    page.locator("#folder").select_option("Trips//")
    settled(page)
    expect(tiles(page)).to_have_count(3)
    assert all("dog" not in name for name in names(page))
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    assert serious(page) == []
