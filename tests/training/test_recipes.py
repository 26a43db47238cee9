"""A recipe says what is wrong with it before anything is trained, and what to write instead."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sightline import settings
from sightline.errors import ModelError, RecipeError
from sightline.models import DualStreamConfig, SingleStreamConfig
from sightline.training.recipe import Recipe, parse_recipe, read_recipe
from sightline.training.setup import make_losses
from training import shapes

GIVEN = shapes.recipe(Path("train.jsonl"), Path("val.jsonl"), hidden=16)
FULL = """
name = "shapes"
seed = 3

[model]
start = "runs/earlier/best"

[data]
train = ["a.jsonl", "${PICTURES}/b-*.tar"]
batch_size = 64

[losses.embed]
loss = "triplet"
margin = 0.2

[losses.match]
loss = "matching"
weight = 0.5

[schedule]
epochs = 2.5
run = "pattern"
pattern = ["embed", "embed", "match"]
decay = "cosine"

[optimizer]
rates = { image = 0.0, text = 1e-5 }

[augment]
crop = 0.8
"""


def changed(**changes: Any) -> dict[str, Any]:
    """The recipe with values at dotted keys (`data__lang`) replaced."""
    data: dict[str, Any] = copy.deepcopy(GIVEN)
    for key, value in changes.items():
        *tables, last = key.split("__")
        table = data
        for name in tables:
            table = table.setdefault(name, {})
        table[last] = value
    return data


def refusal(**changes: Any) -> str:
    with pytest.raises((RecipeError, ModelError)) as refused:
        parse_recipe(changed(**changes), "it.toml")
    return str(refused.value)


def read(tmp_path: Path, *changes: str, text: str = FULL) -> Recipe:
    path = tmp_path / "it.toml"
    path.write_text(text, encoding="utf-8")
    return read_recipe(path, changes)


def test_a_recipe_is_read_with_defaults_for_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICTURES", "/mnt/photos")
    recipe = read(tmp_path)
    assert recipe.data.train == ("a.jsonl", "/mnt/photos/b-*.tar")
    assert recipe.data.draw == "unique"
    assert recipe.schedule.pattern == ("embed", "embed", "match")
    assert recipe.weights == {"embed": 1.0, "match": 0.5}
    assert recipe.optimizer.rates == {"image": 0.0, "text": 1e-5}
    assert recipe.augment is not None
    assert recipe.augment.crop == 0.8
    assert (recipe.start, recipe.seed) == ("runs/earlier/best", 3)


def test_a_recipe_survives_being_written_as_json_and_read_again() -> None:
    recipe = parse_recipe(changed(augment={"flip": 0.0}), "it.toml")
    assert parse_recipe(json.loads(json.dumps(settings.plain(recipe))), "again") == recipe


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("sead", "seed"),
        ("optimiser", "optimizer"),
        ("data__batchsize", "batch_size"),
        ("schedule__warm_up", "warmup"),
        ("optimizer__weight_dacay", "weight_decay"),
        ("validation__rerrank", "rerank"),
        ("augment__colur", "colour"),
        ("model__embeding_dim", "embedding_dim"),
        ("model__preprocess__sise", "size"),
    ],
)
def test_an_unknown_key_is_refused_with_the_key_that_was_meant(key: str, meant: str) -> None:
    message = refusal(**{key: 1})
    assert f'unknown key "{key.split("__")[-1]}"' in message
    assert f'Did you mean "{meant}"?' in message


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("data__batch_size", "many", "data.batch_size: expected int, found 'many'"),
        ("data__batch_size", 0, "data.batch_size cannot be 0"),
        ("data__train", "train.jsonl", "data.train: expected"),
        ("data__train", [], "data.train is empty"),
        ("data__limit", -1, "data.limit cannot be -1"),
        ("data__draw", "uniqe", 'Did you mean "unique"?'),
        ("seed", 1.5, "seed: expected int"),
        ("seed", -1, "seed cannot be -1"),
        ("optimizer__lr", "fast", "optimizer.lr: expected float"),
        ("optimizer__lr", -1e-4, "optimizer.lr cannot be -0.0001"),
        ("optimizer__lr", float("nan"), "optimizer.lr cannot be nan"),
        ("optimizer__rates", {"text": -1.0}, "optimizer.rates.text cannot be -1.0"),
        ("optimizer__betas", [0.9], "expected 2 values, found 1"),
        ("optimizer__betas", [0.9, 1.0], "optimizer.betas cannot be [0.9, 1.0]"),
        ("model__embedding_dim", 0, "model.embedding_dim cannot be 0"),
        ("model__fragment_dim", -4, "model.fragment_dim cannot be -4"),
        ("name", "", "name cannot be ''"),
        ("name", "../best", "name cannot be '../best'"),
        ("validation__metric", "R@5", "validation.metric: 'R@5' is not an allowed value"),
        ("augment__crop", 0.0, "augment.crop cannot be 0.0"),
        ("model__kind", "triple_stream", "Choose from: dual_stream, single_stream"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_key(key: str, value: object, said: str) -> None:
    assert said in refusal(**{key: value})


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({}, "set either schedule.epochs or schedule.steps"),
        ({"epochs": 2, "steps": 100}, "set either schedule.epochs or schedule.steps"),
        ({"epochs": 2, "steps": -1}, "schedule.steps cannot be -1"),
        ({"steps": 9, "warmup": 100}, "a fraction of all steps, from 0 to 1"),
        ({"steps": 9, "run": "pattern"}, 'run = "pattern" needs a pattern of losses'),
        ({"steps": 9, "pattern": ["embed"]}, 'schedule.pattern is set, but run is "together"'),
        ({"steps": 9, "run": "pattern", "pattern": ["embde"]}, 'Did you mean "embed"?'),
        ({"steps": 9, "decay": "exponential"}, "schedule.decay: 'exponential' is not an allowed value"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(schedule: dict[str, Any], said: str) -> None:
    assert said in refusal(schedule=schedule)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ({}, "losses: a recipe needs at least one"),
        ({"embed": {"loss": "triplet", "weight": "much"}}, "losses.embed.weight cannot be 'much'"),
        ({"embed": {"loss": "triplet", "weight": -1}}, "losses.embed.weight cannot be -1"),
        ({"embed": {"loss": "triplet", "weight": 0}}, "all weights are 0"),
    ],
)
def test_losses_that_train_nothing_are_refused(losses: dict[str, Any], said: str) -> None:
    assert said in refusal(losses=losses)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"loss": "contrastiv"}, "'contrastiv' is not a loss\nDid you mean \"contrastive\"?"),
        ({"loss": "bce"}, "Choose from: triplet, contrastive, matching"),
        ({}, "losses.embed.loss: None is not a loss"),
        ({"loss": "triplet", "magrin": 0.1}, 'losses.embed: unknown key "magrin"\nDid you mean "margin"?'),
        ({"loss": "triplet", "margin": "wide"}, "losses.embed.margin: expected float"),
        ({"loss": "matching", "negatives": "hardest"}, "losses.embed.negatives: 'hardest' is not an allowed value"),
    ],
)
def test_a_loss_or_its_setting_that_does_not_exist_is_refused(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        make_losses(parse_recipe(changed(losses={"embed": terms}), "it.toml"))
    assert said in str(refused.value)


def test_a_model_is_new_or_goes_on_from_a_checkpoint_and_not_both() -> None:
    assert isinstance(parse_recipe(changed(), "it.toml").model_config(), DualStreamConfig)
    single = {"kind": "single_stream", **{k: GIVEN["model"][k] for k in ("preprocess", "image")}}
    single["transformer"] = GIVEN["model"]["text"]
    assert isinstance(parse_recipe(changed(model=single), "it.toml").model_config(), SingleStreamConfig)
    assert "would be ignored" in refusal(model={"start": "runs/a/best", "embedding_dim": 8})
    assert "no trained weights to blend" in refusal(blend={"part": "image", "source": "tower", "share": 0.5})


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("seed=7", "seed", 7),
        ("optimizer.lr=1e-4", "optimizer.lr", 1e-4),
        ("optimizer.lr = 1", "optimizer.lr", 1.0),
        ("optimizer.rates.text=0.5", "optimizer.rates", {"image": 0.0, "text": 0.5}),
        ("optimizer.rates={ heads = 1.0 }", "optimizer.rates", {"heads": 1.0}),
        ("schedule.decay=linear", "schedule.decay", "linear"),
        ('name="with = in it"', "name", "with = in it"),
        ("name=bare words", "name", "bare words"),
        ('data.train=["c.jsonl", "${PICTURES}/d"]', "data.train", ("c.jsonl", "/mnt/d")),
        ("validation.every=50", "validation.every", 50),
        ("data.lang=de", "data.lang", "de"),
    ],
)
def test_set_changes_one_value_whatever_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, key: str, value: object
) -> None:
    monkeypatch.setenv("PICTURES", "/mnt")
    found: Any = read(tmp_path, change)
    for name in key.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_the_last_of_two_changes_to_a_key_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICTURES", "/mnt")
    assert read(tmp_path, "seed=1", "seed=2").seed == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("seed", "--set seed: expected key=value"),
        ("=3", "--set =3: expected key=value"),
        ("name.first=1", "name is not a table"),
        ("optimizer.lrr=1", 'unknown key "lrr"\nDid you mean "lr"?'),
        ("seed=", "seed: expected int, found ''"),
        ("data.train=c.jsonl", "data.train: expected"),
    ],
)
def test_set_is_refused_where_it_cannot_be_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, said: str
) -> None:
    monkeypatch.setenv("PICTURES", "/mnt")
    with pytest.raises(RecipeError) as refused:
        read(tmp_path, change)
    assert said in str(refused.value)


def test_a_variable_that_is_not_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PICTURES", raising=False)
    with pytest.raises(RecipeError) as refused:
        read(tmp_path)
    assert str(refused.value).endswith("the environment variable PICTURES is not set\nexport PICTURES=…")


def test_a_file_that_is_no_recipe_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"missing\.toml: no such recipe"):
        read_recipe(tmp_path / "missing.toml")
    with pytest.raises(RecipeError, match=r"it\.toml: cannot be read: .*line 1"):
        read(tmp_path, text="name = \n")
    with pytest.raises(RecipeError, match=r'it\.toml: "model" is missing'):
        read(tmp_path, text='name = "it"')
