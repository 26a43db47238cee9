"""docs/regions.md does what it says: its commands are taken from the page and run, in order."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from datasets import region_files as files
from docs.commands import ROOT, blocks, lines, run_shell
from models.test_detector import detr, saved
from sightline.demo.shapes import shapes, write
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import region_cards

PAGE = (ROOT / "docs" / "regions.md").read_text(encoding="utf-8")
LINES = lines(PAGE)


def caption_file(path: Path, count: int) -> None:
    """A file in Karpathy's layout that calls the pictures as COCO does."""
    images = [
        {
            "filename": f"COCO_val2014_{number:012d}.jpg",
            "split": ("train", "val", "test")[number % 3],
            "sentences": [{"raw": f"{text} {number}"} for text in files.CAPTIONS],
        }
        for number in range(1, count + 1)
    ]
    path.write_text(json.dumps({"images": images}))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Do all that the page says in a fresh folder, with features of few numbers and a model that fits a test."""
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("reader"))
        files.bottom_up(Path(), files.pictures([3] * 90))
        caption_file(Path("dataset_coco.json"), 91)
        write(Path("photos"), list(shapes(seed=0))[:2])
        saved(detr(), Path("detr"))
        yield {line: _follow(line) for line in LINES}


def _follow(line: str) -> str:
    if line.startswith("sightline train"):
        return str(train(parse_recipe(small(), "regions"), "runs/regions").steps)
    return run_shell(line.replace("hf:PekingU/rtdetr_r50vd", "detr"))


def small() -> dict:
    """The recipe of the page, with widths and a duration that fit a test."""
    (block,) = (block for block in blocks(PAGE, "toml") if block.name == "regions.toml")
    recipe = tomllib.loads(block.text)
    recipe["model"]["transformer"] = region_cards.recipe(Path())["model"]["transformer"]
    recipe["model"] |= {"embedding_dim": 8, "fragment_dim": 4, "text_input": {"max_length": 12}}
    recipe["model"]["regions"]["feature_dim"] = files.DIM
    recipe["schedule"] = {**recipe["schedule"], "epochs": 0, "steps": 3}
    recipe["data"]["batch_size"] = 24
    return recipe


def test_every_command_of_the_page_runs(told: dict[str, str]) -> None:
    assert [line.split()[1] for line in told] == ["regions", "regions", "train", "eval", "export", "index", "search"]


def test_the_conversion_tells_what_it_made_and_what_is_lacking(told: dict[str, str]) -> None:
    first, second = (text for line, text in told.items() if line.startswith("sightline regions"))
    assert "90 images (90 with captions), 270 regions of 5 numbers, with boxes" in first
    assert "no regions for 1 captioned images, such as COCO_val2014_000000000091" in first
    assert "2 images (2 with captions)" in second


def test_the_collection_holds_the_pictures_of_the_store(told: dict[str, str]) -> None:
    (index,) = (text for line, text in told.items() if line.startswith("sightline index"))
    assert "90" in index
    found = json.loads(run_shell(f"{LINES[-1]} --json"))
    assert len(found["hits"]) == 10
    assert all(hit["path"].isdecimal() for hit in found["hits"])


def test_the_recipe_of_the_page_is_one() -> None:
    (block,) = (block for block in blocks(PAGE, "toml") if block.name)
    assert parse_recipe(tomllib.loads(block.text), "regions").schedule.epochs == 5
