"""docs/relations.md does what it says: its commands are taken from the page and run, in order."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from docs.commands import ROOT, lines, recipe_of, run_shell, small, towers
from sightline.demo.shapes import shapes, write
from sightline.training.trainer import train

PAGE = (ROOT / "docs" / "relations.md").read_text(encoding="utf-8")
LINES = lines(PAGE)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Do all that the page says in a fresh folder, with towers that fit a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("reader"))
        captions = write(Path("photos"), islice(shapes(seed=0), 24))
        Path("photos", "test.jsonl").write_text(captions.read_text())
        yield {line: _follow(line, str(captions)) for line in LINES}


def _follow(line: str, captions: str) -> str:
    if not line.startswith("sightline train"):
        return run_shell(line)
    shallow = {**towers(1), "pool_to": 3}
    asked = recipe_of(line)
    assert asked.data.neighbours is not None
    alike = replace(asked.data.neighbours, clusters=2, per_cluster=8)
    asked = replace(asked, data=replace(asked.data, neighbours=alike))
    recipe = small(asked, captions, **shallow, embedding_dim=32, fragment_dim=32)
    recipe = replace(recipe, schedule=replace(recipe.schedule, steps=8), optimizer=replace(recipe.optimizer, chunk=0))
    return str(train(recipe, Path("runs", recipe.name)).steps)


def test_every_command_of_the_page_runs(told: dict[str, str]) -> None:
    assert [line.split()[1] for line in told] == [*["train"] * 2, *["eval"] * 2, "export", "index", "search"]


def test_the_log_tells_the_losses_apart(told: dict[str, str]) -> None:
    entries = [json.loads(line) for line in Path("runs/mine-fusion/log.jsonl").read_text().splitlines()]
    parts = [entry["parts"]["relation"] for entry in entries if "parts" in entry]
    assert 0 < len(parts) < 8, "for the first quarter there are no relations"
    assert {"initial", "enhanced"} <= parts[-1].keys()


def test_two_models_rank_together(told: dict[str, str]) -> None:
    alone, both = (told[line] for line in LINES if line.startswith("sightline eval"))
    assert "R@1" in both
    assert alone != both


def test_the_table_has_every_recipe() -> None:
    recipes = {path.name for path in (ROOT / "recipes").glob("hrem-*.toml")}
    assert all(f"`recipes/{name}`" in PAGE for name in recipes)
