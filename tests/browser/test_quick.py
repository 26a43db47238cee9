"""The page says how many pictures are still to be refined."""

from pathlib import Path

from playwright.sync_api import expect

import sightline
from browser.conftest import LIMITS, Opener
from browser.page import serious, settled
from server.samples import fill, picture
from server.served import opening, served
from sightline.server.app import create_app


def test_the_first_screen_says_how_many_are_to_be_refined(
    quick_bundle: Path, tmp_path: Path, open_page: Opener
) -> None:
    folder = fill(tmp_path / "photos", 3)
    sightline.index(folder, model=quick_bundle)
    (folder / "new.png").write_bytes(picture(50))
    sightline.index(folder, model=quick_bundle, quick=True)
    with opening(folder, LIMITS) as found, served(create_app(found.service)) as address:
        page = open_page(at=address)
        settled(page)
        expect(page.get_by_role("heading", level=1)).to_have_text("4 pictures, 1 still to refine")
        assert serious(page) == []
