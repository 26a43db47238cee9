"""Work that is not done twice: each step leaves what it made in the folder of its run, and the next call reads that.

A script that was ended at any moment so goes on where it stopped, when it is called again with the same arguments.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.cli.progress import training
from sightline.training.recipe import read_recipe
from sightline.training.trainer import train

RECIPES = Path(__file__).parents[1] / "recipes"
NOTE = "done"
SAVE_EVERY = 2000  # steps that are lost at most; on a GPU about a minute, and saving takes a second


class Measured(NamedTuple):
    """What was measured of a run: JSON values, with where they come from, and arrays by name."""

    about: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def train_once(recipe: str, changes: Sequence[str], out: Path) -> dict[str, Any]:
    """Train by a recipe into a folder, or go on with that, unless it was done; gives what it took.

    Of what a run leaves, only its checkpoint and its log remain: dozens of runs share a disk.
    """
    note = out / NOTE
    if not note.exists():
        before, began = _seconds_before(out / "log.jsonl"), time.perf_counter()
        with training() as report:
            made = read_recipe(RECIPES / f"{recipe}.toml", changes)
            steps = train(made, out, resume=True, report=report, save_every=SAVE_EVERY).steps
        seconds = round(before + time.perf_counter() - began, 1)
        cost = {"recipe": f"recipes/{recipe}.toml", "changes": list(changes), "steps": steps, "seconds": seconds}
        write_whole(note, json.dumps(cost).encode())
        shutil.rmtree(out / "last")
    found: dict[str, Any] = json.loads(note.read_text())
    if found["changes"] != list(changes):
        raise SystemExit(f"{out}: was trained with {found['changes']}, and now it should be {list(changes)}")
    return found


def _seconds_before(log: Path) -> float:
    """How long the earlier parts of a run took, by its log, whose clock begins anew with every part."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    seconds = [json.loads(line)["seconds"] for line in lines]
    return float(sum(one for one, after in pairwise([*seconds, 0.0]) if after < one))


def measure_once(path: Path, measure: Callable[[], Measured]) -> Measured:
    """Measure, unless that was done and is kept in a file."""
    if not path.exists():
        found = measure()
        new = _beside(path)
        with new.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(found.about)), **found.arrays)  # type: ignore[arg-type]
        new.replace(path)
    with np.load(path) as kept:
        arrays = {name: kept[name] for name in kept.files if name != "about"}
        return Measured(json.loads(str(kept["about"])), arrays)


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result file, whole or not at all."""
    write_whole(path, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    new = _beside(path)
    new.write_bytes(content)
    new.replace(path)


def _beside(path: Path) -> Path:
    """Where this process writes what is to become a file."""
    return path.with_name(f"{path.name}.{os.getpid()}")


class Countdown:
    """How many of a script's runs are left, and how long they will take."""

    def __init__(self, runs: int) -> None:
        self._left, self._longest, self._began = runs, 0.0, time.perf_counter()

    def after_one(self) -> str:
        """Say it after one more run; a run to come is taken to last as long as the longest so far."""
        now = time.perf_counter()
        self._left, self._longest, self._began = self._left - 1, max(self._longest, now - self._began), now
        return f"runs left: {self._left}, about {self._left * self._longest:.0f} s"
