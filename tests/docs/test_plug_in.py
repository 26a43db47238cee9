"""docs/plug-in.md does what it says: its loss, reader and encoder are used, and the curves are drawn."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from docs.pages import followed
from sightline.bundle import Bundle
from sightline.cli import app
from sightline.errors import RecipeError, SightlineError
from sightline.plugins import find, import_modules
from sightline.registry import loader
from sightline.training.curves import open_sinks
from sightline.training.plot import curves
from sightline.training.recipe import parse_recipe
from sightline.training.setup import make_losses
from sightline.training.tables import LogRecipe


def test_the_page_trains_with_its_own_loss_reader_and_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with followed("plug-in.md", tmp_path):
        run = Path("runs/mine")
        entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        assert all(entry["norm"] > 0 and "margin" in entry["loss"] for entry in entries)
        assert curves(entries).keys() == {"loss", "val", "rate", "norm"}
        with Image.open(run / "curves.png") as drawn:
            assert drawn.size == (900, 4 * 260)
        provenance = json.loads((run / "provenance.json").read_text())
        assert provenance["sources"]["train"]["captions"] == 24, "the reader keeps one caption of a picture"
        events = event_accumulator.EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        logged = [(one.step, one.value) for one in events.Scalars("loss/margin")]
        assert logged == [(entry["step"], pytest.approx(entry["loss"]["margin"])) for entry in entries]
        assert "val/t2i/R@1" in events.Tags()["scalars"]
        encoder = json.loads((run / "best" / "image" / "config.json").read_text())
        assert encoder["model_type"] == "cells"
        ours, theirs = Bundle.open("mine-bundle"), loader.load(run / "best")
        read = [model.encode_texts(["a red square"]).embedding for model in (ours, theirs)]
        np.testing.assert_allclose(*read, atol=1e-4)
        again = CliRunner().invoke(app, ["train", "mine.toml", "--resume", "--set", "schedule.steps=5"])
        assert again.exit_code == 0, again.output
    sys.modules.pop("mine", None)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="no_such_module: cannot be imported"):
        find("no_such_module:Loss")
    with pytest.raises(SightlineError, match="the module math has no Loss"):
        find("math:Loss")
    with pytest.raises(SightlineError, match=r"math:sqrt: is not a subclass of transformers\.PreTrainedModel"):
        import_modules(["math:sqrt"])
    data = {"train": ["x.jsonl"]}
    recipe = {"name": "x", "model": {"start": "y"}, "data": data, "schedule": {"steps": 1}}
    with pytest.raises(RecipeError, match=r"math:sqrt is not a subclass of sightline\.losses\.Loss"):
        make_losses(parse_recipe({**recipe, "losses": {"it": {"loss": "math:sqrt"}}}, "x"))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SightlineError, match=r"Weights & Biases is not installed[\s\S]*pip install wandb"):
        open_sinks(LogRecipe(to=("wandb",)), tmp_path, "it", 0)


def test_curves_go_to_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    class Fake:
        @staticmethod
        def init(**options: object) -> "Fake":
            sent.append(options)
            return Fake()

        def log(self, values: object, step: int) -> None:
            sent.append((values, step))

    monkeypatch.setitem(sys.modules, "wandb", Fake)  # type: ignore[arg-type]
    (sink,) = open_sinks(LogRecipe(to=("wandb",), project="mine"), tmp_path, "it", 0)
    sink({"step": 3, "steps": 9, "loss": {"embed": 1.5}})
    assert sent[0]["project"] == "mine"
    assert sent[1] == ({"loss/embed": 1.5}, 3)
