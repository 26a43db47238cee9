"""Looking at the validation data: when, and which checkpoint is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.models import checkpoint
from sightline.training import trainer
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import Trained, train
from training import shapes


class Scored:
    """An evaluation with given numbers."""

    def __init__(self, r_sum: float, r_at_1: float) -> None:
        self.r_sum = r_sum
        self.text_to_image = {"R@1": r_at_1}
        self.image_to_text = {"R@1": r_at_1}

    def to_json(self) -> dict[str, Any]:
        return {"rSum": self.r_sum, "text_to_image": self.text_to_image, "image_to_text": self.image_to_text}


SCORES = [Scored(300, 20), Scored(500, 30), Scored(400, 40), Scored(200, 10)]


def run(few: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **validation: Any) -> Trained:
    scores = iter(SCORES)
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: next(scores))
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 7}}
    return train(parse_recipe(shapes.recipe(few, few, validation=validation, **common), "it"), out)


@pytest.mark.parametrize(("metric", "best"), [("rSum", 1), ("R@1", 2)])
def test_the_checkpoint_that_did_best_is_kept(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, best: int
) -> None:
    trained = run(few, tmp_path / "run", monkeypatch, every=2, metric=metric)
    assert trained.folder == tmp_path / "run" / "best"
    assert id(trained.evaluation) == id(SCORES[best])
    assert trained.validation == {"step": 2 * (best + 1), **SCORES[best].to_json()}
    kept, last = (checkpoint.load(tmp_path / "run" / name)[0].state_dict() for name in ("best", "last"))
    assert not all(torch.equal(kept[name], last[name]) for name in kept)


def test_validation_comes_every_so_often_and_at_the_end(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(few, tmp_path / "often", monkeypatch, every=2)
    run(few, tmp_path / "once", monkeypatch)
    for name, steps in (("often", [2, 4, 6, 7]), ("once", [7])):
        entries = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        assert [entry["step"] for entry in entries if "val" in entry] == steps


def test_without_validation_data_the_last_checkpoint_is_the_best(few: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 2}}
    trained = train(parse_recipe(shapes.recipe(few, **common), "it"), tmp_path / "run")
    assert (trained.evaluation, trained.validation) == (None, None)
    kept, last = (checkpoint.load(tmp_path / "run" / name)[0].state_dict() for name in ("best", "last"))
    assert all(torch.equal(kept[name], last[name]) for name in kept)
