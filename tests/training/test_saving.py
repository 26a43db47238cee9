"""How often a run saves its state, and how long processes wait for the one that validates."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from sightline.errors import RecipeError, SightlineError
from sightline.training import distributed
from sightline.training.recipe import parse_recipe
from sightline.training.save_timer import SaveTimer
from sightline.training.state import saved_step
from sightline.training.trainer import train
from sightline.training.validation import Validation
from training import processes, shapes


def test_steps_and_minutes_say_when_to_save() -> None:
    assert [step for step in range(1, 10) if SaveTimer("4").is_due(step)] == [4, 8]
    now = 0.0
    timer = SaveTimer("1.5m", clock=lambda: now)
    assert not timer.is_due(1)
    now = 90.0
    assert timer.is_due(2)
    timer.reset()
    assert not timer.is_due(3)


@pytest.mark.parametrize("every", [0, -3, "soon", "0m", "5h"])
def test_other_intervals_are_refused(every: Any, few: Path) -> None:
    with pytest.raises(RecipeError, match=r"checkpoint\.every cannot be"):
        parse_recipe(shapes.recipe(few, checkpoint={"every": every}), "it")


def test_the_recipe_says_how_often_and_an_argument_overrides_it(few: Path, tmp_path: Path) -> None:
    data = shapes.recipe(few, hidden=16, data={"batch_size": 12}, schedule={"steps": 4}, checkpoint={"every": 2})
    for expected, options in (([2, 4], {}), ([1, 2, 3, 4], {"save_every": 1}), ([4], {"save_every": "9m"})):
        saved: list[int] = []

        def note(entry: dict[str, Any], out: Path = tmp_path / str(expected), saved: list[int] = saved) -> None:
            state = out / "last" / "run.json"
            if state.exists() and f'"step": {entry["step"]},' in state.read_text():
                saved.append(entry["step"])

        train(parse_recipe(data, "it"), tmp_path / str(expected), report=note, **options)
        assert saved == expected


@pytest.mark.parametrize("writes", ["save_file", "checkpoint.save"])
def test_a_full_disk_ends_the_run_and_keeps_the_last_save(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    asked = parse_recipe(shapes.recipe(few, hidden=16, data={"batch_size": 12}, schedule={"steps": 4}), "it")
    train(asked, tmp_path, stop_after=2)

    def full(*_: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr(f"sightline.training.state.{writes}", full)
        with pytest.raises(SightlineError, match=r"cannot be saved: I/O error: No space left[\s\S]*with --resume"):
            train(asked, tmp_path, resume=True, save_every=1)
    assert saved_step(tmp_path / "last") == 2
    assert not (tmp_path / "last.new").exists()
    assert train(asked, tmp_path, resume=True).steps == 4


def validate_slowly(recipe: dict[str, Any], out: Path) -> None:
    distributed.join(timeout=timedelta(seconds=5))  # a busy machine may take seconds for a step
    evaluate = Validation.evaluate

    def slow(validation: Validation) -> Any:
        time.sleep(6.0)
        return evaluate(validation)

    Validation.evaluate = slow  # type: ignore[method-assign]
    train(parse_recipe(recipe, "it"), out)


def test_processes_wait_for_a_validation_longer_than_for_a_step(few: Path, tmp_path: Path) -> None:
    data = shapes.recipe(few, few, hidden=16, data={"batch_size": 12}, schedule={"steps": 2})
    processes.together(validate_slowly, data, tmp_path / "run")
    assert (tmp_path / "run" / "best" / "validation.json").exists()
