"""Text in pictures on the page: found, quoted on its tile, and marked where it stands."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import sightline
from browser.conftest import LIMITS, Opener
from browser.page import first, named, search, serious, settled, tiles
from documents import Document, make_documents
from server.served import opening, served
from sightline.collection.image_text.reading import read_text_in_images
from sightline.demo import PICTURES
from sightline.server.app import create_app
from sightline.server.run import ServedCollection

CHART, SIGN = 2, 3  # among the documents


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return make_documents(5, seed=1)


@pytest.fixture(scope="module")
def texts(
    opened: ServedCollection, documents: list[Document], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server with two photos, a chart and a sign, whose text has been read."""
    pytest.importorskip("rapidocr_onnxruntime", reason="the extra ocr is not installed")
    folder = tmp_path_factory.mktemp("texts")
    for name in ("dog", "coffee"):
        (folder / f"{name}.jpg").write_bytes((PICTURES / f"{name}.jpg").read_bytes())
    for document in (documents[CHART], documents[SIGN]):
        document.image.save(folder / f"{document.kind}.jpg")
    sightline.index(folder, model=opened.model)
    read_text_in_images(folder / ".sightline")
    with opening(folder, LIMITS) as found, served(create_app(found.service)) as address:
        yield address


def marks(page: Page) -> list[dict[str, float]]:
    """The places of the marked words, in shares of the picture."""
    frame = page.locator("#frame").bounding_box()
    assert frame
    boxes = [one.bounding_box() for one in page.locator("#marks polygon").all()]
    return [
        {
            "left": (box["x"] - frame["x"]) / frame["width"],
            "top": (box["y"] - frame["y"]) / frame["height"],
            "right": (box["x"] + box["width"] - frame["x"]) / frame["width"],
        }
        for box in boxes
        if box
    ]


def test_words_in_a_picture_find_it_and_are_marked(texts: str, documents: list[Document], open_page: Opener) -> None:
    page = search(settled(open_page(at=texts)), documents[SIGN].query)
    expect(first(page)).to_have_attribute("aria-label", named("sign.jpg, with the text"))
    expect(page.locator("#likely .relevance").first).to_contain_text("“")
    first(page).click()
    polygons = page.locator("#marks polygon")
    expect(polygons).to_have_count(5)
    expect(polygons.first).to_be_visible()
    assert len(marks(page)) == 5
    for mark in marks(page):
        assert 0.1 < mark["left"] < mark["right"] < 0.9
        assert 0.2 < mark["top"] < 0.8
    expect(page.locator("#lines li")).to_have_count(3)
    expect(page.locator("#lines .is-marked")).to_have_count(3)
    assert serious(page) == []
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-name")).not_to_have_text("sign.jpg")
    expect(page.locator("#marks")).to_be_hidden()


def test_keys_go_on_to_a_picture_without_text(texts: str, documents: list[Document], open_page: Opener) -> None:
    page = search(settled(open_page(at=texts)), documents[SIGN].query)
    first(page).click()
    page.locator("#lines").focus()
    before = page.locator("#viewer-name").text_content()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-name")).not_to_have_text(before or "")
    page.wait_for_timeout(200)  # browsers take the focus from what is hidden a moment later
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#viewer-name")).to_have_text(before or "")


def test_quotes_find_only_what_is_written(texts: str, documents: list[Document], open_page: Opener) -> None:
    line = documents[SIGN].text.splitlines()[0]
    page = settled(open_page(f"?q=%22{line.replace(' ', '+')}%22", at=texts))
    expect(tiles(page)).to_have_count(1)
    first(page).click()
    expect(page.locator("#marks polygon")).to_have_count(3)
    expect(page.locator("#spoken")).to_be_hidden()  # quoted words are read, not seen
    page.keyboard.press("Escape")
    page.get_by_label("What to find").fill('"nowhere to be read"')
    expect(page.locator("#message")).to_contain_text("No picture with this text.")
    expect(page.locator("#remark")).to_contain_text("No image contains the text 'nowhere to be read'.")


def test_a_phone_shows_the_place_as_well(texts: str, documents: list[Document], open_page: Opener) -> None:
    page = open_page(f"?q={documents[CHART].query.replace(' ', '+')}", at=texts, has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    settled(page)
    expect(first(page)).to_have_attribute("aria-label", named("chart.jpg, with the text"))
    assert serious(page) == []
    first(page).tap()
    expect(page.locator("#marks polygon")).to_have_count(5)
    expect(page.locator("#marks polygon").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    assert serious(page) == []
