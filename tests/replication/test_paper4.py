"""The runs of paper 4: their recipes are whole, differ in what they should and in nothing else, and are measured."""

import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.scripts import RECIPES, script
from sightline.evaluation import Evaluation
from sightline.evaluation.result import FoldRanks
from sightline.losses import Contrastive, MaskedFragments, MaskedWords
from sightline.models import DualStreamConfig
from sightline.training.recipe import Recipe, read_recipe
from sightline.training.setup import make_objectives


@pytest.fixture(scope="module")
def paper4() -> ModuleType:
    return script("replication.paper4")


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA", "data")
    monkeypatch.setenv("SIGHTLINE_PRETRAINED", "pretrained")


def recipes_of(paper4: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, start: str = "scratch") -> list[Recipe]:
    """The recipes that a run trains by, one after another; nothing is trained."""
    trained: list[Recipe] = []

    def read(recipe: str, changes: list[str], out: Path, seed: int) -> dict[str, Any]:
        trained.append(read_recipe(RECIPES / f"{recipe}.toml", [*changes, f"seed={seed}"]))
        return {}

    bench = paper4.Bench(start, [], False, Path("work"))
    monkeypatch.setattr(bench, "_train", read)
    bench.trained(name, 3)
    return trained


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))


def test_without_pretraining_the_model_and_the_fine_tuning_are_the_same() -> None:
    scratch, before, after = table("dot-scratch"), table("dot-pretrain"), table("dot")
    assert scratch["model"] == before["model"]
    for part in ("data", "objectives", "schedule", "optimizer"):
        assert scratch[part] == after[part], part


def test_two_transformers_have_twelve_layers_and_cls_embeddings(
    paper4: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = recipes_of(paper4, monkeypatch, "vmlm-smrm")
    config = before.model_config()
    assert isinstance(config, DualStreamConfig)
    assert config.image_reader is not None
    assert [tower.config["num_hidden_layers"] for tower in (config.text, config.image_reader)] == [12, 12]
    assert (config.text_pooling, config.pool_to**2) == ("first", 49)
    assert before.data.batch_tokens == 10240
    assert before.weights == {"cmr": 16, "vmlm": 8, "smrfr": 4, "smrc": 4}
    assert before.schedule.run == "random"
    assert after.start == "work/vmlm-smrm-pretrain-scratch-3/best"
    assert list(after.objectives) == ["cmr"]


@pytest.mark.parametrize(
    ("name", "drawn", "fused"),
    [
        ("cmr", {"cmr"}, True),
        ("vmlm", {"cmr", "vmlm"}, True),
        ("smrm", {"cmr", "smrfr", "smrc"}, True),
        ("mlm-mrm", {"cmr", "vmlm", "smrfr", "smrc"}, False),
        ("vmlm-smrm", {"cmr", "vmlm", "smrfr", "smrc"}, True),
    ],
)
def test_every_run_has_the_tasks_of_its_name(
    paper4: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, drawn: set[str], fused: bool
) -> None:
    recipe = recipes_of(paper4, monkeypatch, name, "minilm")[0]
    assert {task for task, weight in recipe.weights.items() if weight} == drawn
    objectives = make_objectives(recipe)
    assert isinstance(objectives["cmr"], Contrastive)
    for task in drawn - {"cmr"}:
        objective = objectives[task]
        assert isinstance(objective, MaskedWords | MaskedFragments)
        assert objective.fused == fused
    config = recipe.model_config()
    assert isinstance(config, DualStreamConfig)
    assert config.image_reader is not None
    assert config.text.source == config.image_reader.source == "pretrained/all-MiniLM-L6-v2"


def test_all_seven_languages_are_trained_and_measured(paper4: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (recipe,) = recipes_of(paper4, monkeypatch, "languages")
    config = recipe.model_config()
    assert set(recipe.data.languages) == set(paper4.LANGUAGES) == set(config.text_input.languages)
    assert len(paper4.LANGUAGES) == 7
    assert paper4.DATA.keys() == {*paper4.RUNS, "languages"}


def test_larger_galleries_are_given_larger_recalls(paper4: ModuleType) -> None:
    ranks = np.array([1.0, 15.0, 30.0, 60.0])
    folds = (FoldRanks(ranks, np.arange(4), ranks[::-1], np.arange(4)),)
    found = Evaluation("it", "it", "en", "full", ("embed",), None, None, 0, folds, "same", {}, {}, 0)
    result = paper4.with_more_recalls(found)
    assert result["text_to_image"]["R@20"] == 50
    assert result["image_to_text"]["R@50"] == 75
