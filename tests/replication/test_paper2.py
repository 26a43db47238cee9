"""The runs of paper 2: their recipes are whole, each changes what its row says, and its curves are averaged right."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.scripts import RECIPES, script
from sightline.losses import Relation
from sightline.models import DualStreamConfig
from sightline.training.recipe import Recipe, read_recipe
from sightline.training.setup import make_objectives


@pytest.fixture(scope="module")
def paper2() -> ModuleType:
    return script("replication.paper2")


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA", "data")
    monkeypatch.setenv("SIGHTLINE_PRETRAINED", "pretrained")


def recipe_of(paper2: ModuleType, name: str) -> Recipe:
    run = paper2.RUNS[name]
    return read_recipe(RECIPES / f"{run.recipe}.toml", run.changes)


def relation_of(paper2: ModuleType, name: str) -> Relation:
    relation = make_objectives(recipe_of(paper2, name))["relation"]
    assert isinstance(relation, Relation)
    return relation


def test_every_run_has_the_same_data_steps_and_rates(paper2: ModuleType) -> None:
    base = recipe_of(paper2, "base")
    for name, run in paper2.RUNS.items():
        recipe = recipe_of(paper2, name)
        assert (recipe.schedule, recipe.data.train, recipe.data.batch_size) == (
            base.schedule, base.data.train, base.data.batch_size,
        )  # fmt: skip
        assert recipe.optimizer.lr == base.optimizer.lr
        assert ("relation" in recipe.objectives) == (run.recipe != "hrem-base")
    assert all(part in paper2.RUNS for parts in paper2.ENSEMBLES.values() for part in parts)


@pytest.mark.parametrize(
    ("name", "image", "text"),
    [
        ("plain", False, False),
        ("base", True, True),
        ("fusion", True, True),
        ("no-fragments", False, False),
        ("no-visual", False, True),
        ("no-textual", True, False),
    ],
)
def test_relations_among_fragments_are_those_of_table_3a(
    paper2: ModuleType, name: str, image: bool, text: bool
) -> None:
    config = recipe_of(paper2, name).model_config()
    assert isinstance(config, DualStreamConfig)
    assert config.relations is not None
    assert (config.relations.image, config.relations.text) == (image, text)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("fusion", {}),
        ("standalone", {"mechanism": "standalone"}),
        ("intra", {"among": "intra", "regularisation": 0.0}),
        ("inter", {"among": "inter"}),
        ("no-connection", {"share": 1.0}),
        ("no-relevance", {"relevance": 0.0, "regularisation": 0.0}),
        ("no-consistency", {"consistent": False}),
        ("no-regularisation", {"regularisation": 0.0}),
        ("no-neighbours", {}),
        ("lambda-2", {"relevance": 2.0}),
        ("k-5", {"k": 5}),
        ("tau-0.25", {"share": 0.25}),
        ("bigru", {}),
    ],
)
def test_a_run_changes_what_its_row_says_and_nothing_else(
    paper2: ModuleType, name: str, changed: dict[str, Any]
) -> None:
    relation = relation_of(paper2, name)
    found = {"mechanism": relation.mechanism, "among": relation.among, "consistent": relation.consistent,
             "relevance": relation.relevance, "regularisation": relation.regularisation,
             "share": relation.graph.share, "k": relation.graph.k}  # fmt: skip
    usual = {"mechanism": "fusion", "among": "all", "consistent": True, "relevance": 1.0, "regularisation": 10.0,
             "share": 0.5, "k": 10}  # fmt: skip
    assert found == usual | changed
    assert (relation.layers, relation.heads, relation.triplet.margin, relation.triplet.negatives) == (
        1, 16, 0.2, "distance",
    )  # fmt: skip


def test_neighbours_begin_with_relations_or_never(paper2: ModuleType) -> None:
    begins = {name: recipe_of(paper2, name).data.neighbours for name in ("fusion", "no-neighbours", "base-neighbours")}
    assert {name: asked.begin for name, asked in begins.items() if asked is not None} == {
        "fusion": 0.235, "no-neighbours": 1.0, "base-neighbours": 0.235,
    }  # fmt: skip
    assert recipe_of(paper2, "base").data.neighbours is None


def test_a_curve_is_the_mean_of_equal_parts_of_the_steps_with_relations(paper2: ModuleType, tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [{"step": step} for step in range(1, 21)]
    for entry in entries[10:]:
        entry["parts"] = {"relation": {"initial": entry["step"], "enhanced": 0.5}}
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    found = paper2.curve(log)
    assert [point["step"] for point in found] == list(range(11, 21))
    assert [point["initial"] for point in found] == list(range(11, 21))
    log.write_text('{"step": 1}\n')
    assert paper2.curve(log) == []
