"""What scripts keep: nothing is trained or measured twice, and what was stopped goes on and ends the same."""

import os
import shutil
import tomllib
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from replication import training_runs
from sightline.models import checkpoint
from training import shapes


@pytest.fixture
def once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a recipe of six steps that is saved after every second one."""
    pictures = shapes.write(tmp_path / "pictures", list(shapes.cards(seed=0))[:12])
    (tmp_path / "recipes").mkdir()
    options: dict[str, Any] = {"schedule": {"steps": 6}, "data": {"batch_size": 6}, "validation": {"every": 3}}
    recipe = shapes.recipe(pictures, pictures, hidden=16, layers=1, **options)
    shapes.write_toml(tmp_path / "recipes/tiny.toml", recipe)
    monkeypatch.setattr(training_runs, "RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(training_runs, "SAVE_EVERY", 2)
    return training_runs


def test_training_that_was_stopped_goes_on_and_ends_with_the_same_weights(
    once: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(entry: dict[str, Any]) -> None:
        if entry["step"] == 3:
            raise KeyboardInterrupt

    whole, train = once.train_once("tiny", ["seed=3"], tmp_path / "whole"), once.train
    with monkeypatch.context() as stopped:
        stopped.setattr(once, "train", lambda *given, **options: train(*given, **options | {"report": stop}))
        with pytest.raises(KeyboardInterrupt):
            once.train_once("tiny", ["seed=3"], tmp_path / "parts")
    assert not (tmp_path / "parts/done").exists()
    log = tmp_path / "parts/log.jsonl"
    log.write_text(log.read_text().replace('"seconds": ', '"seconds": 9') + '{"step": 4, "se')
    parts = once.train_once("tiny", ["seed=3"], tmp_path / "parts")
    assert parts["steps"] == whole["steps"] == 6
    assert parts["val"] == whole["val"]
    assert [one["step"] for one in whole["val"]] == [3, 6]
    assert all(one["rSum"] > one["t2i R@1"] > 0 for one in whole["val"])
    assert parts["seconds"] > 90 > whole["seconds"], "the seconds of both parts"
    one, other = (checkpoint.load(tmp_path / name / "best")[0].state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[key], other[key]) for key in one)
    kept = {path.name for path in (tmp_path / "parts").iterdir()}
    assert kept == {"best", "done", "log.jsonl", "provenance.json", "recipe.json"}


def test_what_is_trained_is_not_trained_again_nor_taken_for_something_else(
    once: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = once.train_once("tiny", ["schedule.steps=1"], tmp_path / "run")
    monkeypatch.delattr(once, "train")
    assert once.train_once("tiny", ["schedule.steps=1"], tmp_path / "run") == cost
    with pytest.raises(SystemExit, match=r"was trained with \['schedule.steps=1'\], but now \['seed=1'\] is requested"):
        once.train_once("tiny", ["seed=1"], tmp_path / "run")
    recipe = once.RECIPES / "tiny.toml"
    before = recipe.read_text()
    recipe.write_text(f"# changed\n{before}")
    assert once.train_once("tiny", ["schedule.steps=1"], tmp_path / "run") == cost
    shapes.write_toml(recipe, tomllib.loads(before) | {"seed": 5})
    with pytest.raises(SystemExit, match=r"something else \(seed: .*, now 5\); delete it to train it again"):
        once.train_once("tiny", ["schedule.steps=1"], tmp_path / "run")


def test_what_was_trained_from_a_model_that_has_changed_is_refused(once: ModuleType, tmp_path: Path) -> None:
    first = tmp_path / "first"
    once.train_once("tiny", ["schedule.steps=1"], first)
    recipe = tomllib.loads((once.RECIPES / "tiny.toml").read_text())
    runs: dict[str, dict[str, Any]] = {
        "tuned": recipe | {"model": {"start": str(first / "best")}},
        "student": recipe | {
            "teacher": {"model": str(first / "best"), "by": "embedding"},
            "losses": {"shrink": {"loss": "distill", "on": "embedding"}},
        },
    }  # fmt: skip
    for name, content in runs.items():
        shapes.write_toml(once.RECIPES / f"{name}.toml", content)
    costs = {name: once.train_once(name, ["schedule.steps=1"], tmp_path / name) for name in runs}
    shutil.rmtree(first)
    once.train_once("tiny", ["schedule.steps=1"], first)
    for name, cost in costs.items():
        assert once.train_once(name, ["schedule.steps=1"], tmp_path / name) == cost, "the same weights again"
    shutil.rmtree(first)
    once.train_once("tiny", ["schedule.steps=2"], first)
    for name, what in (("tuned", "initial_weights.model.sha256"), ("student", "teacher.sha256")):
        with pytest.raises(SystemExit, match=rf"{name} was trained with something else \({what}: .*, now .*\); delete"):
            once.train_once(name, ["schedule.steps=1"], tmp_path / name)


def with_teacher(folder: Path, run: str, seed: int) -> dict[str, Any]:
    if run == "bad":
        raise ValueError("no such run")
    return {"cost": training_runs.train_once("tiny", ["schedule.steps=1"], folder / "teacher"), "test": {"rSum": 0.0}}


def test_processes_go_on_after_a_failure_and_train_a_shared_teacher_once(once: ModuleType, tmp_path: Path) -> None:
    options = ["--runs", "bad,one,two", "--seeds", "0,1", "--processes", "3", "--out", str(tmp_path / "out")]
    asked = once.options(None, "paper", "one", ["one"], {}).parse_args(options)
    with pytest.raises(SystemExit, match=r"these runs failed:\n\(0, 'bad'\): no such run\n\(1, 'bad'\): no such run"):
        once.write_results(asked, {}, "test", partial(with_teacher, tmp_path))
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {f"{run}-test-seed{seed}.json" for run in ("one", "two") for seed in (0, 1)}
    assert len((tmp_path / "teacher/log.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(("processes", "each"), [(2, 4), (3, 2), (16, 1)])
def test_processes_share_the_cores(processes: int, each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: (tmp_path / f"{count}").touch())
    training_runs.run_all(processes, dict.fromkeys(range(processes), os.getpid))
    assert [path.name for path in tmp_path.iterdir()] == [str(each)]


def test_what_was_measured_is_kept_whole_or_not_at_all(once: ModuleType, tmp_path: Path) -> None:
    def fails() -> Any:
        raise KeyboardInterrupt

    path = tmp_path / "found.npz"
    with pytest.raises(KeyboardInterrupt):
        once.measure_once(path, fails)
    assert not path.exists()
    made = once.Measured({"seed": 1, "word": "ä"}, {"ranks": np.array([1.0, np.inf]), "more": np.arange(3)})
    for measure in (lambda: made, fails):
        found = once.measure_once(path, measure)
        assert found.about == made.about
        assert found.arrays.keys() == made.arrays.keys()
        assert all(np.array_equal(found.arrays[name], made.arrays[name]) for name in made.arrays)
    assert not list(tmp_path.glob("*.npz.*"))
