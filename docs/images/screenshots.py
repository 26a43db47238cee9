"""Take the screenshots in README.md: the page of `sightline serve`, with the demo's images.

python docs/images/screenshots.py
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import sightline
from sightline.demo import PICTURES

SIZE = {"width": 1240, "height": 760}
MOST_BYTES = 250_000


@contextmanager
def served(at: Path) -> Iterator[str]:
    """Serve a collection with the command; yields its address."""
    command = [sys.executable, "-m", "sightline", "serve", "--at", str(at), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            said = process.stderr.readline()
            found = re.search(r"http://\S+/", said)
            if not found:
                raise SystemExit(said + process.stderr.read())
            yield found[0]
        finally:
            process.terminate()


def window(browser: Browser, address: str, scheme: str) -> Page:
    """Open the page; returns it once all results and thumbnails are loaded."""
    options = {"viewport": SIZE, "device_scale_factor": 1.25, "color_scheme": scheme, "reduced_motion": "reduce"}
    page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector("#results[aria-busy=false] .tile:not(.skeleton)")
    page.wait_for_load_state("networkidle")
    return page


def screenshot(page: Page, path: Path) -> None:
    page.screenshot(path=path, type="jpeg", quality=78)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}.")


def main() -> None:
    out = Path(__file__).resolve().parent
    browser_at = shutil.which("chromium") or sys.exit("Install chromium first.")
    with tempfile.TemporaryDirectory() as folder:
        sightline.index(PICTURES, at=Path(folder))
        with served(Path(folder)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_at, args=["--no-sandbox"])
            window(browser, f"{address}?q=a+dog", "light")  # loads the model
            screenshot(window(browser, f"{address}?q=a+cat", "light"), out / "page-grid.jpg")
            page = window(browser, f"{address}?q=drums+and+a+guitar", "dark")
            page.locator(".tile .open").first.click()
            page.get_by_role("button", name="guitar", exact=True).hover()
            page.wait_for_selector("#heat:not([hidden])")
            page.wait_for_load_state("networkidle")
            screenshot(page, out / "page-heat.jpg")
            browser.close()


if __name__ == "__main__":
    main()
