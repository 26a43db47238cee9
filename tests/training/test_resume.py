"""A run that was stopped or killed, and resumed, ends as one that was left alone: with the same weights, bit by bit."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.errors import RecipeError, SightlineError
from sightline.models import checkpoint
from sightline.training.recipe import parse_recipe
from sightline.training.run_folder import RunFolder
from sightline.training.state import find_state, find_whole, put_in_place, saved_step
from sightline.training.trainer import Trained, train
from training import processes, shapes

STEPS = 6


def recipe(few: Path, **changes: Any) -> dict[str, Any]:
    """Everything that is random at once: dropout, crops, hard negatives, losses drawn by weight."""
    settings: dict[str, Any] = {
        "hidden": 16,
        "dropout": 0.2,
        "data": {"batch_size": 10},
        "augment": {"crop": 0.5, "colour": 0.3},
        "losses": shapes.JOINT,
        "schedule": {"steps": STEPS, "run": "random", "warmup": 0.3},
        "optimizer": {"lr": 1e-3, "chunk": 6},
        "validation": {"every": 2},
    }
    return shapes.recipe(few, few, **settings | changes)


def run(few: Path, out: Path, changes: dict[str, Any] | None = None, **options: Any) -> Trained:
    return train(parse_recipe(recipe(few, **changes or {}), "run"), out, **options)


def weights(folder: Path) -> dict[str, Tensor]:
    return checkpoint.load(folder)[0].state_dict()


def log(out: Path) -> list[dict[str, Any]]:
    """The log without the one thing that may differ."""
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in entries]


@pytest.fixture(scope="module")
def undisturbed(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run(few, out)
    return out


def assert_same_run(out: Path, undisturbed: Path) -> None:
    for folder in ("last", "best"):
        expected = weights(undisturbed / folder)
        found = weights(out / folder)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected), folder
    assert (out / "last" / "run.json").read_text() == (undisturbed / "last" / "run.json").read_text()
    assert log(out) == log(undisturbed)


@pytest.mark.parametrize("stop", [1, 4])
def test_a_run_stopped_and_resumed_ends_with_the_same_weights(
    few: Path, undisturbed: Path, tmp_path: Path, stop: int
) -> None:
    stopped = run(few, tmp_path / "run", stop_after=stop)
    assert stopped.steps == stop == saved_step(tmp_path / "run" / "last")
    resumed = run(few, tmp_path / "run", resume=True)
    assert resumed.steps == STEPS
    assert_same_run(tmp_path / "run", undisturbed)


def test_runs_of_another_seed_end_with_other_weights(few: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Else all of the above could not fail."""
    run(few, tmp_path / "run", {"seed": 1})
    expected, found = weights(undisturbed / "last"), weights(tmp_path / "run" / "last")
    assert not any(torch.equal(found[name], expected[name]) for name in expected if name.endswith("weight"))


@pytest.mark.parametrize("steps_done", [1, 3])
def test_a_run_killed_and_resumed_ends_with_the_same_weights(
    few: Path, undisturbed: Path, tmp_path: Path, steps_done: int
) -> None:
    """Killed before it saved anything, and between two saves; in another process than the one that resumes."""
    out = tmp_path / "run"
    process = processes.start(processes.train_slowly, recipe(few), out, 2)
    deadline = time.monotonic() + 60
    while not (out / "log.jsonl").exists() or len((out / "log.jsonl").read_text().splitlines()) < steps_done:
        assert process.is_alive(), "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert saved_step(out / "last") < STEPS
    run(few, out, resume=True, save_every=2)
    assert_same_run(out, undisturbed)


class KilledError(BaseException):
    """Stands for a kill: nothing that catches errors catches it."""


@pytest.mark.parametrize(("folder", "moment"), [("last", "before"), ("last", "between"), ("best", "between")])
def test_a_run_killed_while_it_replaces_a_folder_keeps_the_one_before(
    few: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, moment: str
) -> None:
    out = tmp_path / "run"
    run(few, out, stop_after=3)
    before = {name: weights(out / name) for name in ("last", "best")}
    rename = Path.rename
    doomed = {"before": out / folder, "between": out / f"{folder}.new"}[moment]

    def killing(path: Path, target: Path) -> Path:
        if path == doomed:
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killing)
        with pytest.raises(KilledError):
            run(few, out, resume=True)
    assert (out / f"{folder}.new").exists()
    whole = find_whole(out / folder)
    assert whole == (out / folder if moment == "before" else out / f"{folder}.old")
    assert all(torch.equal(value, before[folder][name]) for name, value in weights(whole).items())
    with pytest.raises(SightlineError, match="already contains a run"):
        run(few, out)
    run(few, out, resume=True)
    assert_same_run(out, undisturbed)
    assert sorted(path.name for path in out.iterdir()) == [
        "best",
        "last",
        "log.jsonl",
        "provenance.json",
        "recipe.json",
    ]


def test_a_folder_half_written_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    def killed() -> None:
        with put_in_place(tmp_path / "last") as new:
            new.mkdir()
            (new / "run.json").write_text("{")
            raise KilledError

    with pytest.raises(KilledError):
        killed()
    assert find_state(tmp_path / "last") is None
    with put_in_place(tmp_path / "last") as new:
        new.mkdir()
        (new / "run.json").write_text('{"step": 3}')
    assert saved_step(tmp_path / "last") == 3


def test_a_folder_that_holds_a_run_is_refused_without_resume(few: Path, undisturbed: Path) -> None:
    before = (undisturbed / "log.jsonl").read_text()
    with pytest.raises(SightlineError, match=r"already contains a run\nAdd --resume .* or choose another --out"):
        run(few, undisturbed)
    assert (undisturbed / "log.jsonl").read_text() == before


def test_a_recipe_that_is_not_of_a_run_is_kept(few: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"title": "Pancakes"}')
    with pytest.raises(SightlineError, match="is not the recipe of a run"):
        run(few, tmp_path, stop_after=1)
    assert (tmp_path / "recipe.json").read_text() == '{"title": "Pancakes"}'


def test_a_best_checkpoint_alone_is_not_overwritten_either(few: Path, tmp_path: Path) -> None:
    """A run that was killed between its first validation and its first save has nothing else."""
    run(few, tmp_path / "run", stop_after=2)
    shutil.rmtree(tmp_path / "run" / "last")
    with pytest.raises(SightlineError, match="already contains a run"):
        run(few, tmp_path / "run")


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_a_run_is_writing_to_is_refused(few: Path, tmp_path: Path, resume: bool) -> None:
    out, refused = tmp_path / "run", []

    def second(entry: dict[str, Any]) -> None:
        if entry["step"] == 1:
            with pytest.raises(SightlineError, match=r"run: another run is writing to it\nStop it, or choose another"):
                run(few, out, resume=resume)
            refused.append(True)

    run(few, out, report=second)
    assert refused
    assert [entry["step"] for entry in log(out)] == list(range(1, STEPS + 1))
    assert not (out / "lock").exists()


def test_a_run_started_while_another_prepares_is_not_overwritten(few: Path, tmp_path: Path) -> None:
    slow, out = RunFolder(tmp_path / "run"), tmp_path / "run"
    with slow.locked():
        run(few, out, stop_after=2)
        with pytest.raises(SightlineError, match="another run was started there meanwhile"):
            slow.open(parse_recipe(recipe(few), "run"), 0)
    assert saved_step(out / "last") == 2


def test_a_run_ended_by_an_error_does_not_stay_locked(few: Path, tmp_path: Path) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError) as kept:  # its traceback refers to the run
        run(few, tmp_path / "run", report=fail, save_every=1)
    assert run(few, tmp_path / "run", resume=True).steps == STEPS
    assert kept


def test_a_finished_run_resumed_is_left_as_it_is(few: Path, undisturbed: Path) -> None:
    before = (undisturbed / "log.jsonl").read_text()
    found = run(few, undisturbed, resume=True)
    assert found.steps == STEPS
    assert found.folder == undisturbed / "best"
    assert found.validation is not None
    assert found.validation["step"] == json.loads((undisturbed / "last" / "run.json").read_text())["best_step"]
    assert (undisturbed / "log.jsonl").read_text() == before


def test_resume_where_nothing_is_begins_a_run(few: Path, undisturbed: Path, tmp_path: Path) -> None:
    run(few, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


def test_resume_with_another_recipe_is_refused_and_names_what_differs(few: Path, undisturbed: Path) -> None:
    changes = {"optimizer": {"lr": 1e-4, "chunk": 6}, "schedule": {"steps": STEPS, "run": "random"}}
    with pytest.raises(RecipeError) as refused:
        run(few, undisturbed, changes, resume=True)
    assert "optimizer.lr: 0.001, now 0.0001; schedule.warmup: 0.3, now 0.0" in refused.value.what
    assert "another --out" in refused.value.way_out


def test_a_run_begun_by_a_version_without_a_setting_resumes(few: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(few, out, stop_after=3)
    begun = json.loads((out / "recipe.json").read_text())
    del begun["checkpoint"]
    (out / "recipe.json").write_text(json.dumps(begun))
    run(few, out, resume=True)
    assert_same_run(out, undisturbed)


def test_of_recipes_that_differ_in_many_things_five_are_named(few: Path, undisturbed: Path) -> None:
    losses = {name: {"loss": "triplet"} for name in "abcdefgh"}
    with pytest.raises(RecipeError, match=r"; and \d+ more") as refused:
        run(few, undisturbed, {"losses": losses}, resume=True)
    assert refused.value.what.count(", now ") == 5


def test_a_state_that_was_damaged_is_refused_by_name(few: Path, tmp_path: Path) -> None:
    run(few, tmp_path / "run", stop_after=1)
    (tmp_path / "run" / "last" / "optimizer.safetensors").write_bytes(b"nonsense")
    with pytest.raises(SightlineError, match=r"last: the saved state cannot be read"):
        run(few, tmp_path / "run", resume=True)


def test_changed_training_data_are_reported_when_a_run_is_resumed(few: Path, tmp_path: Path) -> None:
    shutil.copytree(few.parent, tmp_path / "pictures", ignore=shutil.ignore_patterns("teacher"))
    data, out = tmp_path / "pictures" / few.name, tmp_path / "run"
    notes: list[str] = []

    def notify(note: str) -> None:
        if "changed" in note:
            notes.append(note)

    run(data, out, stop_after=2, notify=notify)
    run(data, out, resume=True, stop_after=3, notify=notify)
    assert notes == []
    lines = data.read_text(encoding="utf-8").splitlines(keepends=True)
    data.write_text("".join(lines[:-1]), encoding="utf-8")
    run(data, out, resume=True, stop_after=4, notify=notify)
    (note,) = notes
    assert "were changed after the run was started" in note
    assert "goes on from step 3" in note
    run(data, out, resume=True, stop_after=5, notify=notify)
    assert len(notes) == 1
