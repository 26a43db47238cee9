import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

import sightline
from server.samples import limits
from server.served import opening, served
from sharing import made_once
from sightline.demo import PICTURES
from sightline.server.app import create_app
from sightline.server.run import ServedCollection

SHOWN = {
    "animals/birds": ("kingfisher", "owl"),
    "animals": ("cat-face", "dog", "horses", "kitten-in-a-box", "kitten-with-yarn", "red-panda"),
    "trips/2021": ("castle-on-the-water",),
    "trips/2023": ("great-wall", "drums-and-guitar"),
    ".": ("astronaut", "coffee", "fig-in-a-bowl"),
}
TAKEN = {"castle-on-the-water": "2021:05:06 07:08:09", "great-wall": "2023:08:01 10:00:00"}
TEXTS = (
    "a brown dog runs along the beach",
    "two kittens play with a ball of wool",
    "a small owl sits on a branch at night",
    "a red bowl with half a fig in it",
    "an old castle beside a river",
)
LIMITS = limits(seconds=60)
PATIENCE_MS = 60_000  # of a machine that has other things to do
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
Opener = Callable[..., Page]
Filler = Callable[[Path, Sequence[str]], None]


def executable() -> str:
    """Where the browser is; a test that wants one skips, saying so, where there is none."""
    found = os.environ.get("SIGHTLINE_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        pytest.skip("no browser: install chromium, or name one by SIGHTLINE_BROWSER")
    return found


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the demo's pictures in folders, two of them with a date; indexed by the model that ships."""
    executable()

    def make(folder: Path) -> None:
        for place, names in SHOWN.items():
            (folder / place).mkdir(parents=True, exist_ok=True)
            for name in names:
                _copy(PICTURES / f"{name}.jpg", folder / place / f"{name}.jpg", TAKEN.get(name))
        sightline.index(folder)

    return made_once(tmp_path_factory, "photos-of-the-demo", make)  # it takes ten seconds


@pytest.fixture(scope="session")
def photos(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same pictures, for this process alone."""
    return Path(shutil.copytree(indexed, tmp_path_factory.mktemp("photos"), dirs_exist_ok=True))


def _copy(source: Path, target: Path, taken: str | None) -> None:
    if taken is None:
        shutil.copy(source, target)
        return
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = taken
    with Image.open(source) as image:
        image.save(target, quality="keep", exif=exif)


@pytest.fixture(scope="session")
def opened(photos: Path) -> Iterator[ServedCollection]:
    with opening(photos, LIMITS) as found:
        yield found


@pytest.fixture(scope="session")
def fill(indexed: Path, opened: ServedCollection) -> Filler:
    """Puts some of the pictures into a folder and indexes them there, from the vectors that they have already."""

    def filler(folder: Path, names: Sequence[str]) -> None:
        shutil.copytree(indexed / ".sightline", folder / ".sightline")
        for name in names:
            (picture,) = indexed.rglob(f"{name}.jpg")
            shutil.copy(picture, folder)
        assert sightline.index(folder, model=opened.model).encoded == 0

    return filler


@pytest.fixture(scope="session")
def address(opened: ServedCollection) -> Iterator[str]:
    """Where the pictures are served."""
    with served(create_app(opened.service)) as found:
        yield found


@pytest.fixture(scope="session")
def texts_address(opened: ServedCollection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a collection of texts is served."""
    place = tmp_path_factory.mktemp("texts") / "captions.txt"
    place.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    sightline.index(place, at=place.parent / "collection", model=opened.model)
    with opening(place.parent / "collection", LIMITS) as found, served(create_app(found.service)) as where:
        yield where


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A module's own: while it runs, no other test in this process could run an event loop of its own."""
    place = executable()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE_MS)
        yield launched
        launched.close()


@pytest.fixture
def allowed() -> list[str]:
    """Patterns of browser errors that a test expects; none by default."""
    return []


@pytest.fixture
def open_page(browser: Browser, address: str, allowed: list[str]) -> Iterator[Opener]:
    """Opens the page at an address below the server's, in a window of its own; fails if the browser complained."""
    complaints: list[str] = []
    contexts = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    def opener(path: str = "", *, at: str = "", **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.add_init_script("addEventListener('securitypolicyviolation', e => console.error(`CSP: ${e.blockedURI}`))")
        page.goto(f"{at or address}/{path}")
        return page

    yield opener
    for context in contexts:
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")  # some may be in the middle of a request
        context.close()
    assert not [told for told in complaints if not any(re.search(pattern, told) for pattern in allowed)]
