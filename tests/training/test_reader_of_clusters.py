"""A transformer over clusters of what a frozen tower sees, with codes, as paper 3 has it: trained, taught, kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.models import checkpoint, image_tower
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import Trained, train
from training import shapes

LATE = {"late": {"loss": "triplet", "on": "fragments", "margin": 0.6, "negatives": "sum"}}
FAST = {"embed": {"loss": "triplet", "margin": 0.2, "negatives": "sum"}}
SHRUNKEN = {"shrink": {"loss": "distill", "teacher_temperature": 0.5, "student_temperature": 0.1}}


def trained(few: Path, out: Path, objectives: dict[str, Any], steps: int = 30, **model: Any) -> Trained:
    teacher = {"teacher": {"model": str(out.parent / "teacher/best")}} if "shrink" in objectives else {}
    data = shapes.recipe(
        few, hidden=16, data={"batch_size": 24, "draw": "all"}, losses=objectives,
        schedule={"steps": steps, "warmup": 0.1}, optimizer={"lr": 3e-3, "rates": {"image": 0.0}}, **teacher,
    )  # fmt: skip
    reader = {"config": {**data["model"]["text"]["config"], "vocab_size": 2}}
    plain = {"matcher": "none", "text_pooling": "first", "pool": "kmeans", "pool_to": 5, "image_reader": reader}
    data["model"] |= {**plain, **model}
    return train(parse_recipe(data, "it"), out)


def losses(out: Path) -> list[float]:
    return [next(iter(json.loads(line)["loss"].values())) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures each call of the clustering had."""
    calls: list[int] = []
    cluster = image_tower.clusters

    def count(values: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(len(values))
        return cluster(values, *rest)

    monkeypatch.setattr(image_tower, "clusters", count)
    return calls


def test_pictures_are_clustered_once_and_every_kind_of_run_learns(
    few: Path, tmp_path: Path, counted: list[int]
) -> None:
    for name, objectives, model in (
        ("fast", FAST, {}),
        ("base", LATE, {}),
        ("teacher", LATE, {"codes": 3}),
        ("shrunken", SHRUNKEN, {}),
        ("shrunken-late", {"shrink": {**SHRUNKEN["shrink"], "on": "fragments"}}, {"fragments": 2}),
    ):
        counted.clear()
        trained(few, tmp_path / name, objectives, **model)
        assert counted == [24] * (2 if "shrink" in objectives else 1), "the student's pictures, and the teacher's"
        found = losses(tmp_path / name)
        assert min(found[:3]) > 1.2 * max(found[-3:]), name


def test_codes_are_trained_and_the_tower_is_not(few: Path, tmp_path: Path) -> None:
    folder = trained(few, tmp_path / "run", LATE, 3, codes=3).folder
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    torch.manual_seed(recipe["seed"])
    start = checkpoint.build(parse_recipe(recipe, "it").model_config()).state_dict()
    end = checkpoint.load(folder)[0].state_dict()
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    assert {"image_reader.codes", "image_reader.start", "text_codes"} <= moved
    assert not any(name.startswith("image.") for name in moved)
