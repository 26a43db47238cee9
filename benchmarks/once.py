"""Training that is not done twice: a run leaves a note of what it took, and the next one reads that."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.training.recipe import read_recipe
from sightline.training.trainer import train

RECIPES = Path(__file__).parent.parent / "recipes"
NOTE = "done"


def train_once(recipe: str, changes: Sequence[str], out: Path) -> dict[str, Any]:
    """Train by a recipe into a folder, unless that was done; gives what it took."""
    if not (out / NOTE).exists():
        began = time.perf_counter()
        steps = train(read_recipe(RECIPES / f"{recipe}.toml", changes), out, save_every=10**9).steps
        seconds = round(time.perf_counter() - began, 1)
        cost = {"recipe": f"recipes/{recipe}.toml", "changes": list(changes), "steps": steps, "seconds": seconds}
        (out / NOTE).write_text(json.dumps(cost))
    found: dict[str, Any] = json.loads((out / NOTE).read_text())
    return found
