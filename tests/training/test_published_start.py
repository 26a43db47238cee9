"""Runs that start from a published model: CLIP and SigLIP whole, with LoRA, averaged with the start, stopped early."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import sightline
from models import published
from sightline.datasets import read_all
from sightline.errors import ModelError, RecipeError, SightlineError
from sightline.models import checkpoint
from sightline.models.torch_model import read
from sightline.training.recipe import parse_recipe
from sightline.training.setup import make_losses, make_model
from sightline.training.trainer import Trained, train
from sightline.training.validation import Validation
from training import shapes

SMALL = {"batch_size": 12}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    for name in ("clip", "siglip", "blip"):
        getattr(published, name)(folder / name)
    return folder


def recipe(few: Path, start: Path, steps: int = 3, **changes: Any) -> dict[str, Any]:
    settings = {"data": SMALL, "schedule": {"steps": steps}, "optimizer": {"lr": 1e-3}, **changes}
    return {**shapes.recipe(few, few, **settings), "model": {"start": str(start)}}


def run(
    few: Path, start: Path, out: Path, steps: int = 3, options: dict[str, Any] | None = None, **changes: Any
) -> Trained:
    return train(parse_recipe(recipe(few, start, steps, **changes), "it"), out, **options or {})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read(folder)[0].state_dict()


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_trained_model_beats_zero_shot_on_pictures_that_it_never_saw(
    name: str, models: Path, few: Path, tmp_path: Path
) -> None:
    drawn = shapes.write(tmp_path / "train", shapes.cards(seed=1, copies=4))
    asked = parse_recipe({**recipe(drawn, models / name, 60, data={"batch_size": 24, "val": []})}, "it")
    model, _ = make_model(asked, None, [])
    loss = make_losses(asked, model)["embed"]
    assert loss.scale().item() == pytest.approx(min(100, 1 / model.initial_temperature))
    folder = train(asked, tmp_path / "run").folder
    before, after = (sightline.evaluate(sightline.load(one), read_all(few)) for one in (models / name, folder))
    assert after.r_sum > before.r_sum + 60
    opened = sightline.load(folder)
    assert opened.abilities == {"embed"}
    assert not opened.calibration, "that of SigLIP belongs to another loss"
    assert opened.preprocess == sightline.load(models / name).preprocess


def test_a_resumed_run_ends_with_the_same_weights(models: Path, few: Path, tmp_path: Path) -> None:
    for name, more in (("whole", {"average": {"kind": "last", "with_start": 0.25}}), ("lora", {"lora": {"rank": 2}})):
        run(few, models / "clip", tmp_path / name / "at-once", **more)
        run(few, models / "clip", tmp_path / name / "twice", options={"stop_after": 2}, **more)
        run(few, models / "clip", tmp_path / name / "twice", options={"resume": True}, **more)
        for folder in ("best", "last"):
            expected, found = (weights(tmp_path / name / run / folder) for run in ("at-once", "twice"))
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[key], expected[key]) for key in expected), (name, folder)


def test_the_kept_weights_are_a_mean_with_the_initial_ones(models: Path, few: Path, tmp_path: Path) -> None:
    folder = run(few, models / "clip", tmp_path, average={"kind": "last", "with_start": 0.25}).folder
    start, last, kept = (weights(one) for one in (models / "clip", tmp_path / "last", folder))
    for name in start:
        torch.testing.assert_close(kept[name], torch.lerp(last[name], start[name], 0.25))
    assert not torch.equal(start["model.visual_projection.weight"], last["model.visual_projection.weight"])


def test_lora_leaves_the_encoders_as_they_are_and_is_merged_into_the_best(
    models: Path, few: Path, tmp_path: Path
) -> None:
    found = run(few, models / "clip", tmp_path, lora={"rank": 2, "encoders": ["text"]}, optimizer={"lr": 1e-2})
    start, last, best = (weights(one) for one in (models / "clip", tmp_path / "last", found.folder))
    assert start.keys() == last.keys() == best.keys()
    adapted = {name for name in start if "text_model" in name and not torch.equal(start[name], best[name])}
    assert adapted
    assert all(".self_attn." in name and name.endswith("weight") for name in adapted)
    assert all(torch.equal(start[name], last[name]) for name in start if "text_model" in name)
    assert found.evaluation is not None
    again = sightline.evaluate(sightline.load(found.folder), read_all(few))
    assert again.r_sum == pytest.approx(found.evaluation.r_sum), "merged weights rank as the adapters did"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"losses": {"match": {"loss": "matching"}}}, "losses.match: a published model has only embeddings"),
        ({"losses": {"late": {"loss": "contrastive", "on": "fragments"}}}, "losses.late: a published model has"),
        ({"lora": {"layers": "nothing"}}, "lora.layers: no linear layer"),
        ({"lora": {"encoders": ["sound"]}}, 'has no encoder "sound"'),
        ({"lora": {}, "average": {"with_start": 0.5}}, "average.with_start cannot be combined with lora"),
        ({"validation": {"patience": 2}}, "validation.patience needs more than one validation"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    more: dict[str, Any], said: str, models: Path, few: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError) as refused:
        run(few, models / "clip", tmp_path / "run", **more)
    assert said in str(refused.value)


def test_other_published_models_are_refused_by_name(models: Path, few: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"blip cannot be trained further\nUse a CLIP"):
        run(few, models / "blip", tmp_path / "run")
    with pytest.raises(ModelError, match="no such folder"):
        run(few, models / "nothing", tmp_path / "run")


def test_without_peft_lora_says_what_to_install(
    models: Path, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(SightlineError, match=r"LoRA needs peft[\s\S]*sightline-search\[lora\]"):
        run(few, models / "clip", tmp_path / "run", lora={})


def test_a_run_that_no_longer_improves_ends_early(
    models: Path, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([3.0, 5.0, 4.0, 4.5, 1.0])
    monkeypatch.setattr(Validation, "score", lambda *_: next(scores))
    more = {"validation": {"every": 1, "patience": 2}}
    assert run(few, models / "clip", tmp_path / "run", steps=9, **more).steps == 4
    assert json.loads((tmp_path / "run" / "last" / "run.json").read_text())["best_step"] == 2
    assert run(few, models / "clip", tmp_path / "run", steps=9, options={"resume": True}, **more).steps == 4


def test_a_checkpoint_of_a_published_model_is_a_start_too(models: Path, few: Path, tmp_path: Path) -> None:
    first = run(few, models / "clip", tmp_path / "first").folder
    second = run(few, first, tmp_path / "second", steps=1).folder
    assert checkpoint.load(second)[0].abilities == {"embed"}
