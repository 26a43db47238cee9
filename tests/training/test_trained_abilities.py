"""Only abilities that were trained are offered: by a checkpoint, its bundle, evaluation and search."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline.bundle import Bundle
from sightline.datasets import read_all
from sightline.errors import ModelError, RecipeError
from sightline.models import checkpoint
from sightline.training.recipe import parse_recipe, read_recipe
from sightline.training.trainer import Trained, train
from tiny import copy_graphs
from training import region_cards, shapes

SMALL: dict[str, Any] = {"hidden": 16, "layers": 1, "data": {"batch_size": 12}}
LATE = {"late": {"loss": "triplet", "on": "fragments"}}
LOSSES: dict[str, dict[str, Any]] = {
    "embed": {"embed": {"loss": "contrastive"}},
    "embed and late": {**LATE, "embed": {"loss": "triplet"}},
    "late": LATE,
}


def trained(few: Path, out: Path, steps: int = 2, **changes: Any) -> Trained:
    return train(parse_recipe(shapes.recipe(few, few, schedule={"steps": steps}, **{**SMALL, **changes}), "it"), out)


@pytest.fixture(scope="module")
def exported(
    few: Path, shapes_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Path]]:
    """The checkpoint and the bundle of a short run with the losses of a name; made once for each."""

    @functools.cache
    def make(name: str) -> tuple[Path, Path]:
        if name == "embed and match":
            return shapes_run / "run" / "best", shapes_run / "bundle"
        folder = tmp_path_factory.mktemp("exported")
        options: dict[str, Any] = {"losses": LOSSES[name], "layers": 0}  # layers take seconds to export
        run = trained(few, folder / "run", 4, **options).folder
        sightline.export(run, folder / "bundle")
        return run, folder / "bundle"

    return make


@pytest.mark.parametrize(
    ("losses", "abilities"),
    [
        ("embed", {"embed"}),
        ("embed and late", {"embed", "fragments"}),
        ("embed and match", {"embed", "match"}),
        ("late", {"fragments"}),
    ],
)
def test_a_checkpoint_and_its_bundle_have_what_was_trained(
    losses: str, abilities: set[str], exported: Callable[[str], tuple[Path, Path]], few: Path
) -> None:
    folder, exported_to = exported(losses)
    assert checkpoint.load(folder)[0].abilities == abilities
    bundle = Bundle.open(exported_to)
    assert set(bundle.spec.abilities) == abilities
    assert ("match.onnx" in bundle.spec.files) == ("match" in abilities)
    assert bundle.spec.defaults.rerank == 0
    for model in (bundle, sightline.load(folder)):
        if "embed" in abilities and "match" not in abilities:
            with pytest.raises(ModelError, match="no matcher, so `rerank` is unavailable: the model supports only"):
                sightline.evaluate(model, read_all(few), rerank=5)


def test_a_run_records_how_each_trained_ability_did(few: Path, tmp_path: Path) -> None:
    run = trained(few, tmp_path / "run", 30, losses=shapes.ALL, optimizer={"lr": 2e-3})
    heads = json.loads((run.folder / "validation.json").read_text())["heads"]
    assert heads.keys() == {"embed", "fragments", "match"} == checkpoint.load(run.folder)[0].abilities
    model, records = sightline.load(run.folder), read_all(few)
    for ability, stages in {"embed": {}, "fragments": {"late": 20}, "match": {"rerank": 20, "fusion": "ce"}}.items():
        found = sightline.evaluate(model, records, **stages)
        assert heads[ability]["t2i"] == pytest.approx(found.text_to_image), ability
        assert heads[ability]["rSum"] == pytest.approx(found.r_sum)
    assert len({heads[ability]["rSum"] for ability in heads}) == 3
    assert run.validation is not None
    assert run.validation["heads"] == heads


def test_a_loss_without_weight_trains_nothing(few: Path, tmp_path: Path) -> None:
    losses = {"embed": {"loss": "contrastive"}, "match": {"loss": "matching", "weight": 0.0}}
    assert checkpoint.load(trained(few, tmp_path / "run", losses=losses).folder)[0].abilities == {"embed"}


@pytest.mark.parametrize(("rates", "ranked"), [({"image": 0.0, "text": 0.0}, 20), ({}, 48)])
def test_abilities_add_up_over_runs_and_embeddings_choose_candidates_unless_they_are_forgotten(
    few: Path, tmp_path: Path, rates: dict[str, float], ranked: int
) -> None:
    first = trained(few, tmp_path / "first").folder
    data = shapes.recipe(
        few,
        few,
        losses={"match": {"loss": "matching"}},
        schedule={"steps": 1},
        data={"batch_size": 12},
        optimizer={"rates": rates},
    )
    notes: list[str] = []
    made = parse_recipe({**data, "model": {"start": str(first)}}, "it")
    second = train(made, tmp_path / "second", notify=notes.append)
    assert any("no loss trains the embeddings" in note for note in notes) == (not rates)
    assert checkpoint.load(second.folder)[0].abilities == {"embed", "match"}
    assert second.evaluation is not None
    assert second.evaluation.stages == ("embed", f"match@{ranked}")


def test_a_single_stream_forgets_embeddings_even_with_a_frozen_transformer(tmp_path: Path) -> None:
    data = region_cards.store(tmp_path / "cards.regions", 0)
    val = region_cards.store(tmp_path / "val.regions", 1, split="val")
    first = train(parse_recipe(region_cards.recipe(data, val), "it"), tmp_path / "first", stop_after=1).folder
    notes: list[str] = []
    recipe = region_cards.recipe(data, val, losses={"match": {"loss": "matching"}})
    recipe |= {"model": {"start": str(first)}, "optimizer": {"rates": {"transformer": 0.0}}}
    second = train(parse_recipe(recipe, "it"), tmp_path / "second", stop_after=1, notify=notes.append)
    assert second.steps == 1
    assert [note.rsplit(". ")[-1] for note in notes] == ["Add a loss for them, such as contrastive."]


def test_a_run_that_trains_fragments_alone_is_validated_by_them(few: Path, tmp_path: Path) -> None:
    found = trained(few, tmp_path / "run", losses=LATE)
    assert found.evaluation is not None
    assert found.evaluation.stages == ("embed", "late@48")


def test_a_long_validation_is_pointed_out(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.training.validation._MANY_PAIRS", 100)
    notes: list[str] = []
    for losses in ({"match": {"loss": "matching"}}, {"embed": {"loss": "contrastive"}}):
        recipe = shapes.recipe(few, few, schedule={"steps": 1}, losses=losses, **SMALL)
        train(parse_recipe(recipe, "it"), tmp_path / next(iter(losses)), notify=notes.append)
    (note,) = [note for note in notes if "pairs are matched each time" in note]
    assert "1,152 pairs" in note


def test_a_run_that_trains_a_matcher_alone_is_validated_by_it(few: Path, tmp_path: Path) -> None:
    found = trained(few, tmp_path / "run", losses={"match": {"loss": "matching"}})
    assert found.evaluation is not None
    assert found.evaluation.stages == ("embed", "match@48")
    assert checkpoint.load(found.folder)[0].abilities == {"match"}


def test_a_model_without_a_trained_ability_is_not_exported(few: Path, tmp_path: Path) -> None:
    losses = {"words": {"loss": "masked_words"}}
    folder = trained(few, tmp_path / "run", losses=losses, data={"batch_size": 12, "val": []}).folder
    with pytest.raises(ModelError, match="not trained for anything that a search uses"):
        sightline.export(folder, tmp_path / "bundle")


def test_a_checkpoint_that_does_not_say_what_was_trained_offers_all(few: Path, tmp_path: Path) -> None:
    folder = trained(few, tmp_path / "run").folder
    path = folder / "retriever.json"
    description = json.loads(path.read_text())
    assert description.pop("trained") == ["embed"]
    path.write_text(json.dumps(description))
    assert checkpoint.load(folder)[0].abilities == {"embed", "fragments", "match"}


def test_calibration_turns_a_rerank_on_only_if_it_helps(
    exported: Callable[[str], tuple[Path, Path]], few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plain = exported("embed and match")
    copy_graphs(plain, monkeypatch)
    spec = sightline.export(folder, tmp_path / "bundle", calibrate=read_all(few))
    assert spec.defaults.rerank in (0, 20)
    with_rerank = sightline.evaluate(
        sightline.load(tmp_path / "bundle"), read_all(few), rerank=spec.defaults.rerank
    ).r_sum
    assert with_rerank >= sightline.evaluate(sightline.load(tmp_path / "bundle"), read_all(few), rerank=0).r_sum - 0.01


def test_a_plain_search_is_as_good_as_one_without_a_rerank(
    exported: Callable[[str], tuple[Path, Path]], few: Path, tmp_path: Path
) -> None:
    """What README's quick start makes: an embedding loss, exported without calibration."""
    _, bundle = exported("embed")
    at = sightline.index(few.parent, at=tmp_path / "at", model=bundle).at
    with sightline.open(at) as collection:
        for record in read_all(few)[:6]:
            caption = record.captions["en"][0]
            plain, without = (collection.search(caption, k=5, **asked) for asked in ({}, {"rerank": 0}))
            assert [hit.path for hit in plain] == [hit.path for hit in without]
    with pytest.raises(ModelError, match="no fragments, so `late` is unavailable: the model supports only `embed`"):
        sightline.search("a red square", at=at, late=5)


@pytest.mark.parametrize(("given", "set_to"), [("epochs = 3", "steps=2"), ("steps = 30", "epochs=0.5")])
def test_steps_and_epochs_replace_each_other(given: str, set_to: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    tiny = (
        'name = "x"\n[model]\nstart = "there"\n[data]\ntrain = ["a.jsonl"]\nbatch_size = 2\n'
        f'[losses.embed]\nloss = "contrastive"\n[schedule]\n{given}\n'
    )
    path.write_text(tiny)
    name, _, value = set_to.partition("=")
    found = read_recipe(path, [f"schedule.{set_to}"]).schedule
    assert getattr(found, name) == float(value)
    assert min(found.steps, found.epochs) == 0
    path.write_text(tiny.replace(given, "steps = 1\nepochs = 1"))
    with pytest.raises(RecipeError, match=r"either schedule\.epochs or schedule\.steps"):
        read_recipe(path)


def test_a_model_of_fragments_alone_ranks_by_late_interaction(
    exported: Callable[[str], tuple[Path, Path]], few: Path, tmp_path: Path
) -> None:
    folder, bundle = exported("late")
    at = sightline.index(few.parent, at=tmp_path / "at", model=bundle).at
    with sightline.open(at) as collection:
        plain, late = (collection.search("a red square on black", k=5, **asked) for asked in ({}, {"late": "all"}))
        assert [hit.path for hit in plain] == [hit.path for hit in late]
        assert {hit.stage for hit in plain} == {"late"}
    with pytest.raises(ModelError, match="no embeddings, so ranking is unavailable") as refused:
        sightline.evaluate(sightline.load(folder), read_all(few))
    assert "late" in refused.value.way_out
