"""A run goes on with another number of processes than it had, and each of them writes its part of the state."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from sightline.errors import SightlineError
from sightline.models import checkpoint
from sightline.training import state
from sightline.training.recipe import parse_recipe
from sightline.training.state import saved_step
from sightline.training.trainer import train
from training import processes, shapes

STEPS = 4


def recipe(few: Path) -> dict[str, Any]:
    return shapes.recipe(
        few,
        hidden=16,
        data={"batch_size": 15, "draw": "pairs"},
        augment={"crop": 0.5, "colour": 0.2},
        losses=shapes.JOINT,
        optimizer={"lr": 1e-3, "weight_decay": 0.1, "chunk": 4},
        schedule={"steps": STEPS, "run": "pattern", "pattern": shapes.PATTERN},
    )


def run(few: Path, out: Path, **options: Any) -> None:
    train(parse_recipe(recipe(few), "run"), out, **options)


def weights(out: Path) -> dict[str, Tensor]:
    return checkpoint.load(out / "last")[0].state_dict()


def parts(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "last").glob("optimizer*"))


def assert_nearly_same(out: Path, other: Path) -> None:
    found, expected = weights(out), weights(other)
    for name, value in expected.items():
        if not name.endswith(("k_proj.bias", "key.bias")):  # softmax does not see these: see test_distributed
            assert float((found[name] - value).abs().max()) <= 1e-5, name


@pytest.fixture(scope="module")
def alone(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    run(few, out)
    return out


@pytest.fixture(scope="module")
def lost_one(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes, one of which was killed after the second step."""
    out = tmp_path_factory.mktemp("lost") / "run"
    codes = processes.ended(processes.train_until_killed, recipe(few), out, 2, count=2)
    assert codes[1] == -signal.SIGKILL
    assert codes[0] not in (0, None), "the other did not notice"
    return out


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_that_lost_a_process_goes_on_with_fewer_or_more(
    count: int, few: Path, alone: Path, lost_one: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(lost_one, out)
    assert saved_step(out / "last") == 2
    assert parts(out) == ["optimizer-1-of-2.safetensors", "optimizer-2-of-2.safetensors"]
    processes.together(processes.train_each, {"run": (recipe(few), {"resume": True})}, tmp_path, count=count)
    assert saved_step(out / "last") == STEPS
    assert len(parts(out)) == count
    assert_nearly_same(out, alone)


def test_the_parts_of_a_state_are_the_whole_and_share_nothing(few: Path, lost_one: Path, tmp_path: Path) -> None:
    run(few, tmp_path / "run", stop_after=2)
    whole = load_file(tmp_path / "run" / "last" / "optimizer.safetensors")
    first, second = (load_file(lost_one / "last" / name) for name in parts(lost_one))
    assert not first.keys() & second.keys()
    assert first.keys() | second.keys() == whole.keys()
    assert all(float(((first | second)[name] - value).abs().max()) <= 1e-4 for name, value in whole.items())
    sizes = [sum(value.numel() for value in part.values()) for part in (first, second)]
    assert min(sizes) > sum(sizes) / 4


def test_a_state_without_one_of_its_parts_is_refused(few: Path, lost_one: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(lost_one, out)
    (out / "last" / "optimizer-1-of-2.safetensors").unlink()
    with pytest.raises(SightlineError, match=r"missing files: optimizer-1-of-2\.safetensors"):
        run(few, out, resume=True)


def test_a_folder_that_another_process_made_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_PATIENCE", 0.0)
    with pytest.raises(SightlineError, match=r"not visible to this one\n.*a disk that all machines share"):
        state._check_seen(tmp_path / "last.new")
