"""The user's folders: the cache, which can be deleted at any time, and the state, which should be kept."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from sightline.files import write_atomic


def cache_folder() -> Path:
    """Return the folder for data that can be recreated: SIGHTLINE_CACHE, or the platform's cache folder."""
    named = os.environ.get("SIGHTLINE_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sightline"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "sightline"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline"


def state_folder() -> Path:
    """Return the folder for data that must be kept between runs: SIGHTLINE_STATE, or the platform's state folder."""
    named = os.environ.get("SIGHTLINE_STATE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "sightline"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "sightline" / "state"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sightline"


def load_cached(name: str) -> dict[str, Any]:
    """Return the value last saved under a name; an empty dict if it is missing or unreadable."""
    try:
        value = json.loads((cache_folder() / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home folder
        return {}
    return value if isinstance(value, dict) else {}


def save_cached(name: str, value: dict[str, Any]) -> None:
    """Save a value under a name; does nothing if the cache folder is not writable."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / f"{name}.json", json.dumps(value), sync=False)
    except (OSError, RuntimeError):
        return
