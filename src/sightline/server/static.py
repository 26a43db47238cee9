"""The web page: a fixed set of files, listed at startup; no other path is served."""

import hashlib
from pathlib import Path

from sightline.errors import ServeError

PAGE_FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


def page_files(folder: Path = PAGE_FOLDER) -> dict[str, Path]:
    """Return the files of the page by URL path; `/` is `index.html`."""
    found = {f"/{path.name}": path for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
    if "/index.html" not in found:
        raise ServeError(f"{folder}: the page is missing", "Install Sightline again.")
    return {"/": found["/index.html"], **found}


def content_type(path: Path) -> str:
    """Return the content type of a file."""
    return _TYPES[path.suffix]


def tag(data: bytes) -> str:
    """Return the entity tag of a file's content."""
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'
