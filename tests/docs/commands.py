"""What pages of the documentation say to do, taken from them; and recipes made small enough for a test."""

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

import tiny
from sightline import settings
from sightline.cli import app
from sightline.training.recipe import Recipe, read_recipe

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, what it says, and the name under which the text before it says to save it."""

    language: str
    text: str
    name: str


def blocks(page: str, *languages: str) -> list[Block]:
    found = []
    for fence in FENCE.finditer(page):
        named = re.search(r"Save\s(?:it|this)\sas\s`([\w.-]+)`:\n\n$", page[: fence.start()])
        found.append(Block(fence[1], fence[2], named[1] if named else ""))
    return [block for block in found if block.language in languages]


def lines(page: str) -> list[str]:
    """The commands of the shell blocks; a backslash joins a line to the next."""
    return [line for block in blocks(page, "sh") for line in block.text.replace("\\\n", "").splitlines()]


def run_shell(line: str, exit_code: int = 0) -> str:
    """Run a line of a page; `sightline` in this process, where torch is loaded already."""
    program, *arguments = shlex.split(line, comments=True)
    if program != "sightline":
        return subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == exit_code, done.output
    return done.output


def recipe_of(command: str) -> Recipe:
    """The recipe that a `sightline train` of a page trains by, with its changes."""
    _, _, path, *options = shlex.split(command)
    return read_recipe(ROOT / path, [change for flag, change in zip(options[::2], options[1::2], strict=True)])


def small(recipe: Recipe, captions: str, **model: Any) -> Recipe:
    """The same recipe, with a model, data and a duration that fit a test."""
    return replace(
        recipe,
        model={**recipe.model, **model},
        data=replace(recipe.data, train=(captions,), val=(captions,), batch_size=24),
        schedule=replace(recipe.schedule, epochs=0, steps=2),
        optimizer=replace(recipe.optimizer, chunk=16),
    )


def towers(layers: int = 0) -> dict[str, Any]:
    """What makes the model of a recipe for a GPU fit a test: as many layers, or `layers`, with little in them."""
    return {
        "image": {"config": {**tiny.VISION, "num_hidden_layers": layers or 12}},
        "text": {"config": {**tiny.TEXT, "num_hidden_layers": layers or 2}},
        "preprocess": settings.plain(tiny.PREPROCESS),
        "text_input": {"max_length": tiny.MAX_LENGTH},
    }
