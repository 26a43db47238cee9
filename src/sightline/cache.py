"""Small things worth remembering between two runs, where the system keeps such things; all can be deleted any time."""

import json
import os
import sys
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """The folder for what can be made again: SIGHTLINE_CACHE, or where this system wants it."""
    named = os.environ.get("SIGHTLINE_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sightline"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "sightline"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline"


def recall(name: str) -> dict[str, Any]:
    """What was last remembered under a name; nothing where that is missing or cannot be read."""
    try:
        found = json.loads((cache_folder() / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return {}
    return found if isinstance(found, dict) else {}


def remember(name: str, value: dict[str, Any]) -> None:
    """Remember a value under a name, whole or not at all; where nothing can be written, it is forgotten."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{name}.{os.getpid()}.new"
        draft.write_text(json.dumps(value), encoding="utf-8")
        draft.replace(folder / f"{name}.json")
    except (OSError, RuntimeError):
        return
