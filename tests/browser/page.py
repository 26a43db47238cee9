"""What tests see of the page, and do with it."""

import base64
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Route, expect

from browser.conftest import PATIENCE_MS
from sightline.demo import PICTURES

PUT_FILE = """([kind, name, type, data]) => {
    const bytes = Uint8Array.from(atob(data), character => character.charCodeAt(0));
    const carried = new DataTransfer();
    carried.items.add(new File([bytes], name, { type }));
    const event = kind === "paste"
        ? new ClipboardEvent(kind, { clipboardData: carried, bubbles: true, cancelable: true })
        : new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event);
}"""
PIXELS = """canvas => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return [canvas.height, canvas.width, Array.from(pixels.filter((_, place) => place % 4 === 0))];
}"""


class Held:
    """Keeps requests from the server until they are let go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.page = page
        self.routes: list[Route] = []
        self.holds = True
        page.route(re.compile(pattern), lambda route: self.routes.append(route) if self.holds else route.continue_())

    def wait_for(self, count: int = 1) -> None:
        """Wait until so many requests are held."""
        end = time.monotonic() + PATIENCE_MS / 1000
        while len(self.routes) < count:
            assert time.monotonic() < end, "no such request"
            self.page.wait_for_timeout(20)

    def let_go(self) -> None:
        """Let go of these requests, and of any that are still to come."""
        self.holds = False
        for route in self.routes:
            route.continue_()


def settled(page: Page) -> Page:
    """Wait until all that was asked for is shown."""
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")
    return page


def search(page: Page, words: str) -> Page:
    """Type a search and wait for the close look at it."""
    page.get_by_label("What to find").fill(words)
    expect(page).to_have_url(re.compile(rf"q={re.escape(words.replace(' ', '+'))}(&|$)"))
    return settled(page)


def tiles(page: Page) -> Locator:
    """Every result that is there, the likely ones first."""
    return page.locator("#results .tile:not(.skeleton) .open")


def names(page: Page) -> list[str]:
    """The results as a screen reader tells them."""
    return [label or "" for label in tiles(page).evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")]


def first(page: Page) -> Locator:
    return tiles(page).first


def named(name: str) -> re.Pattern[str]:
    """The label of a picture's tile."""
    return re.compile(rf"^{re.escape(name)}\b")


def put(page: Page, kind: str, file: Path | bytes = PICTURES / "cat-face.jpg", type: str = "image/jpeg") -> None:
    """Drop or paste a file."""
    data = file if isinstance(file, bytes) else file.read_bytes()
    name = "made-up.jpg" if isinstance(file, bytes) else file.name
    page.evaluate(PUT_FILE, [kind, name, type, base64.b64encode(data).decode()])


def heat(page: Page) -> npt.NDArray[Any]:
    """How red the heat map is, [rows, columns]: it is redder the hotter it is."""
    canvas = page.locator("#heat")
    expect(canvas).to_be_visible()
    rows, columns, red = canvas.evaluate(PIXELS)
    return np.array(red, dtype=np.float32).reshape(rows, columns)


def word(page: Page, text: str) -> Locator:
    """A word of the query in the enlarged view."""
    return page.locator("#viewer-words .word", has_text=re.compile(f"^{text}$"))


def serious(page: Page) -> list[str]:
    """What axe finds in the way of a screen reader."""
    found = Axe().run(page).response["violations"]
    return [wrong["id"] for wrong in found if wrong["impact"] in ("serious", "critical")]
