"""docs/late-interaction.md does what it says: its commands are taken from the page and run, in order."""

import json
import shlex
import shutil
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from PIL import Image

import sightline
from docs.commands import ROOT, lines, recipe_of, run_shell, small, towers
from sightline.demo import PICTURES
from sightline.demo.shapes import shapes, write
from sightline.registry import loader
from sightline.training.trainer import train

PAGE = (ROOT / "docs" / "late-interaction.md").read_text(encoding="utf-8")
LINES = lines(PAGE)


@pytest.fixture(scope="module")
def told(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Do all that the page says in a fresh folder, by a tiny model, and train with towers that fit a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "_bundled", lambda: tiny_bundle)
        patch.chdir(tmp_path_factory.mktemp("reader"))
        shutil.copy(PICTURES / "drums-and-guitar.jpg", "drums-and-guitar.jpg")
        captions = write(Path("photos"), islice(shapes(seed=0), 24))
        for name in ("train", "val", "test"):
            Path("photos", f"{name}.jsonl").write_text(captions.read_text())
        first = next(Path("photos").glob("*.png"))
        shutil.copy(first, "photos/0.png")
        sightline.index(".", at=".sightline")
        yield {line: _follow(line, str(captions)) for line in LINES}


def _follow(line: str, captions: str) -> str:
    if not line.startswith("sightline train"):
        return run_shell(line)
    asked = recipe_of(line)
    shallow = {**towers(1), "pool_to": 5}
    recipe = small(asked, captions, **shallow, image_reader=shallow["text"])
    return str(train(recipe, Path("runs", recipe.name)).steps)


def test_every_command_of_the_page_runs(told: dict[str, str]) -> None:
    assert [line.split()[1] for line in told] == [
        *["search"] * 3, "explain", *["train"] * 3, *["eval"] * 2, "export", "index", "search", "explain",
    ]  # fmt: skip


def test_what_is_drawn_is_drawn(told: dict[str, str]) -> None:
    for name in ("heat.jpg", "codes.png"):
        with Image.open(name) as drawn:
            assert min(drawn.size) > 300, name
    assert "32 codes" in told[LINES[-1]]


def test_a_search_by_late_interaction_alone_is_one(tiny_bundle: Path, told: dict[str, str]) -> None:
    alone, *_ = (line for line in LINES if "--late all --rerank 0" in line)
    found = json.loads(run_shell(f"{alone} --json"))
    assert {hit["stage"] for hit in found["hits"]} == {"late"}
    assert found["took_ms"]["match"] == 0 < found["took_ms"]["interact"]


def test_teachers_are_what_was_trained_before(told: dict[str, str]) -> None:
    recipes = [recipe_of(line) for line in LINES if line.startswith("sightline train")]
    for before, after in pairwise(recipes):
        assert after.teacher is not None
        assert after.teacher.model == f"runs/{before.name}/best"


def test_the_commands_need_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SIGHTLINE_DATA", "SIGHTLINE_PRETRAINED"):
        monkeypatch.delenv(name, raising=False)
    for line in LINES:
        if line.startswith("sightline train"):
            recipe = recipe_of(line)
            assert recipe.model_config()
            assert recipe.data.val == ("photos/val.jsonl",)


def test_the_page_lists_every_recipe_of_late_interaction() -> None:
    there = {path.name for path in (ROOT / "recipes").glob("*.toml") if path.name.startswith(("inflate", "shrink"))}
    assert {name for name in there if f"`recipes/{name}`" in PAGE} == there


def test_the_picture_of_the_page_is_what_its_command_draws() -> None:
    (command,) = (shlex.split(line) for line in LINES if line.startswith("sightline explain") and "--codes" not in line)
    with Image.open(ROOT / "docs" / "images" / "explain.jpg") as drawn:
        across, gap, side = len(command[2].split()) + 1, 20, 300
        assert drawn.width == gap + -(-across // 2) * (side + gap), "the picture and each word, in two rows"
