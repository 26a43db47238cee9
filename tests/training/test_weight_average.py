"""The mean of the weights over the last part of a run is what is validated and kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.models import checkpoint
from sightline.training.recipe import parse_recipe
from sightline.training.tables import AverageRecipe
from sightline.training.trainer import train
from sightline.training.weight_average import WeightAverage
from training import shapes


def recipe(few: Path, **average: Any) -> dict[str, Any]:
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 6}}
    return shapes.recipe(few, few, **common) | ({"average": average} if average else {})


def weights(folder: Path) -> dict[str, Tensor]:
    return checkpoint.load(folder)[0].state_dict()


def after(few: Path, out: Path, steps: int) -> dict[str, Tensor]:
    """The weights after so many steps of a run without a mean."""
    train(parse_recipe(recipe(few), "it"), out / str(steps), stop_after=steps)
    return weights(out / str(steps) / "last")


def test_the_best_checkpoint_is_the_mean_of_the_last_steps(few: Path, tmp_path: Path) -> None:
    trained = train(parse_recipe(recipe(few, begin=0.5), "it"), tmp_path / "run")
    last = [after(few, tmp_path, steps) for steps in (4, 5, 6)]
    for name, value in weights(trained.folder).items():
        torch.testing.assert_close(value, torch.stack([one[name] for one in last]).mean(0), rtol=1e-5, atol=1e-6)
    for name, value in weights(tmp_path / "run" / "last").items():
        assert torch.equal(value, last[-1][name]), "training itself should go on with its own weights"


def test_a_resumed_run_ends_with_the_mean_of_one_left_alone(few: Path, tmp_path: Path) -> None:
    asked = parse_recipe(recipe(few, begin=0.3, kind="exponential", decay=0.5), "it")
    train(asked, tmp_path / "whole")
    for steps in (1, 4):
        train(asked, tmp_path / "parts", resume=True, stop_after=steps)
    train(asked, tmp_path / "parts", resume=True)
    expected, found = weights(tmp_path / "whole" / "best"), weights(tmp_path / "parts" / "best")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize(("kind", "expected"), [("uniform", 2.0), ("exponential", 2.25)])
def test_recent_steps_weigh_more_in_an_exponential_mean(kind: Any, expected: float) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    average = WeightAverage(AverageRecipe(0.25, kind, 0.5), model, steps=4)
    for step, value in enumerate([100.0, 1.0, 2.0, 3.0]):
        torch.nn.init.constant_(model.weight, value)
        average.update(step)
    with average.applied():
        assert model.weight.item() == expected
    assert model.weight.item() == 3
