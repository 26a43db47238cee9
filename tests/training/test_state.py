"""What a saved state holds: all of the optimiser, the losses and where the run stands."""

from pathlib import Path

import pytest
import torch
from torch import nn

import tiny
from sightline.losses import Contrastive
from sightline.models import checkpoint
from sightline.training.optimizer import make_optimizer
from sightline.training.state import TrainingProgress, load_state, save_state
from sightline.training.tables import OptimizerRecipe
from training.sides import gradients


def begun(folder: Path | None = None) -> tuple[checkpoint.AnyRetriever, torch.optim.AdamW, nn.ModuleDict]:
    model = tiny.retriever(tiny.DUAL) if folder is None else checkpoint.load(folder)[0]
    losses = nn.ModuleDict({"embed": Contrastive(temperature=0.5)})
    recipe = OptimizerRecipe(lr=1e-2, rates={"image": 1e-3})
    return model, make_optimizer(recipe, model, losses.values()), losses  # type: ignore[return-value]


def step(model: checkpoint.AnyRetriever, optimizer: torch.optim.AdamW, losses: nn.ModuleDict) -> None:
    gradients(model, list(losses.values()), chunk=0)  # type: ignore[arg-type]
    optimizer.step()


def test_moments_steps_and_a_learned_temperature_come_back_exactly(tmp_path: Path) -> None:
    run = begun()
    for _ in range(2):
        step(*run)
    model, optimizer, losses = run
    save_state(tmp_path / "last", model, tiny.tokenizer(), optimizer, losses, TrainingProgress(2, 71.5, 1))
    loaded = begun(tmp_path / "last")
    assert load_state(tmp_path / "last", *loaded[1:]) == TrainingProgress(2, 71.5, 1)
    learned, found, begin = (one.state_dict()["embed.log_scale"] for one in (losses, loaded[2], begun()[2]))
    assert found == learned != begin
    states = [
        [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]]
        for _, optimizer, _ in (run, loaded)
    ]
    assert len(states[0]) == len(states[1]) > 0
    for before, after in zip(*states, strict=True):
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert any("exp_avg" in state for state in states[0])

    step(*run)
    step(*loaded)
    for name, value in loaded[0].state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


@pytest.mark.parametrize("fused", [True, False])
def test_a_fused_step_finds_its_count_where_the_parameter_is(tmp_path: Path, fused: bool) -> None:
    run = begun()
    step(*run)
    save_state(tmp_path / "last", run[0], tiny.tokenizer(), *run[1:], TrainingProgress(1))
    model, _, losses = begun(tmp_path / "last")
    elsewhere = make_optimizer(OptimizerRecipe(lr=1e-2, rates={"image": 1e-3}), model.to("meta"), losses.values())
    elsewhere.defaults["fused"] = fused
    load_state(tmp_path / "last", elsewhere, losses)
    state = elsewhere.state[elsewhere.param_groups[0]["params"][0]]
    assert state["exp_avg"].device.type == "meta"
    assert state["step"].device.type == ("meta" if fused else "cpu")


def test_a_state_holds_nothing_but_safetensors_and_json(tmp_path: Path) -> None:
    run = begun()
    step(*run)
    save_state(tmp_path / "last", run[0], tiny.tokenizer(), *run[1:], TrainingProgress(1))
    kinds = {path.suffix for path in (tmp_path / "last").rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json"}


@pytest.mark.parametrize("progress", [TrainingProgress(), TrainingProgress(5, 0.0, 5), TrainingProgress(9, 512.25, 3)])
def test_where_a_run_stands_comes_back(tmp_path: Path, progress: TrainingProgress) -> None:
    model, optimizer, losses = begun()
    save_state(tmp_path / "last", model, tiny.tokenizer(), optimizer, losses, progress)
    assert load_state(tmp_path / "last", optimizer, losses) == progress
