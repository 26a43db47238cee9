"""Which objectives a step has, how fast what learns, and what stays as it is."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from sightline.arrays import Int64Array
from sightline.errors import RecipeError
from sightline.losses import Contrastive
from sightline.models import checkpoint
from sightline.models.retriever import TowerFeatures
from sightline.training.corpus import FeatureCache
from sightline.training.optimizer import make_optimizer, parts_of
from sightline.training.recipe import Recipe, parse_recipe
from sightline.training.schedule import rate_at, seed_at, weights_at
from sightline.training.tables import OptimizerRecipe, ScheduleRecipe
from sightline.training.trainer import train
from training import shapes


def rates(steps: int, **settings: Any) -> list[float]:
    return [rate_at(step, steps, ScheduleRecipe(steps=steps, **settings)) for step in range(steps)]


def test_the_rate_falls_in_a_line_or_a_cosine_or_not_at_all() -> None:
    assert rates(10) == pytest.approx([1 - step / 10 for step in range(10)])
    cosine = [0.5 * (1 + math.cos(math.pi * step / 10)) for step in range(10)]
    assert rates(10, decay="cosine") == pytest.approx(cosine)
    assert rates(10, decay="constant") == [1.0] * 10


@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_the_rate_first_rises_in_a_line_for_the_share_that_warmup_says(decay: str) -> None:
    found = rates(20, warmup=0.25, decay=decay)
    assert found[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert found[5:] == pytest.approx(rates(15, decay=decay))
    assert min(found) > 0


def recipe(**changes: Any) -> Recipe:
    return parse_recipe(shapes.recipe(Path("train.jsonl"), hidden=16, **changes), "it.toml")


def test_together_every_step_has_every_objective_with_its_weight() -> None:
    objectives = {"embed": {"loss": "contrastive", "weight": 2}, "match": {"loss": "matching"}}
    asked = recipe(losses=objectives)
    assert weights_at(0, asked) == weights_at(9, asked) == {"embed": 2, "match": 1.0}


def test_a_pattern_is_repeated_step_by_step_with_the_weights() -> None:
    objectives = {"embed": {"loss": "contrastive"}, "match": {"loss": "matching", "weight": 0.5}}
    schedule = {"steps": 9, "run": "pattern", "pattern": shapes.PATTERN}
    asked = recipe(losses=objectives, schedule=schedule)
    turn = [{"embed": 1.0}, {"embed": 1.0}, {"match": 0.5}]
    assert [weights_at(step, asked) for step in range(7)] == [*turn, *turn, turn[0]]


def test_at_random_objectives_come_as_often_as_their_weights_say() -> None:
    weights = {"a": 4, "b": 2, "c": 1, "never": 0}
    objectives = {name: {"loss": "contrastive", "weight": weight} for name, weight in weights.items()}
    asked = recipe(losses=objectives, schedule={"steps": 9, "run": "random"})
    drawn = [weights_at(step, asked) for step in range(7000)]
    counts = Counter(name for chosen in drawn for name in chosen)
    assert all(len(chosen) == 1 and set(chosen.values()) == {1.0} for chosen in drawn)
    assert {name: counts[name] / 1000 for name in weights} == pytest.approx(weights, abs=0.2)
    assert drawn == [weights_at(step, asked) for step in range(7000)], "a resumed run would draw others"
    other = recipe(losses=objectives, schedule={"steps": 9, "run": "random"}, seed=1)
    assert drawn[:100] != [weights_at(step, other) for step in range(100)]


def test_no_two_steps_of_neighbouring_seeds_share_a_seed() -> None:
    recipes = [recipe(seed=seed) for seed in (0, 1, 2)]
    seeds = {seed_at(step, asked) for asked in recipes for step in range(1000)}
    assert len(seeds) == 3000


def test_every_parameter_is_in_one_part_and_vectors_do_not_decay() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-own"])
    assert set(parts_of(model)) == {"image", "text", "matcher", "heads"}
    contrastive = Contrastive()
    optimizer = make_optimizer(OptimizerRecipe(weight_decay=0.3, rates={"losses": 0.5}), model, [contrastive])
    listed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in (*model.parameters(), contrastive.log_scale))
    for group in optimizer.param_groups:
        shapes_there = {p.ndim > 1 for p in group["params"]}
        assert group["weight_decay"] == (0.3 if shapes_there == {True} else 0.0)
        assert len(shapes_there) == 1
        assert group["lr"] == (0.5 if group["name"] == "losses" else 5e-5)


def test_a_head_by_its_name_has_its_own_rate() -> None:
    model = tiny.retriever(tiny.DUAL)
    rates = {"image_embedding": 0.25, "heads": 0.5}
    groups = make_optimizer(OptimizerRecipe(rates=rates), model, []).param_groups
    found = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert found[id(model.image_embedding.linear.weight)] == 0.25  # type: ignore[union-attr]
    assert found[id(model.text_embedding.linear.weight)] == 0.5  # type: ignore[union-attr]


def test_a_temperature_that_is_not_to_be_learned_stays_out_of_the_optimiser() -> None:
    contrastive = Contrastive(learn_temperature=False)
    optimizer = make_optimizer(OptimizerRecipe(), tiny.retriever(tiny.DUAL), [contrastive])
    assert not contrastive.log_scale.requires_grad
    assert all(p is not contrastive.log_scale for group in optimizer.param_groups for p in group["params"])


def test_a_part_that_the_model_does_not_have_is_refused_with_the_one_that_was_meant() -> None:
    model = tiny.retriever(tiny.DUAL)
    with pytest.raises(RecipeError, match=r'no part "images"\nDid you mean "image"\?'):
        make_optimizer(OptimizerRecipe(rates={"images": 0.0}), model, [])
    with pytest.raises(RecipeError, match=r'no part "brain"\nChoose from: image, text, heads, losses\.'):
        make_optimizer(OptimizerRecipe(rates={"brain": 0.0}), model, [])


def test_a_recipe_that_freezes_everything_is_refused() -> None:
    with pytest.raises(RecipeError, match="nothing to train"):
        make_optimizer(OptimizerRecipe(lr=0.0), tiny.retriever(tiny.DUAL), [])


def movements(few: Path, out: Path, **changes: Any) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Train a few steps; how far each part of the model moved at most, and the losses."""
    settings: dict[str, Any] = {
        "hidden": 16,
        "data": {"batch_size": 10},
        "losses": shapes.JOINT,
        "schedule": {"steps": 3, "decay": "constant"},
    }
    asked = parse_recipe(shapes.recipe(few, **settings | changes), "it")
    trained = train(asked, out)
    torch.manual_seed(asked.seed)
    before: dict[str, Tensor] = checkpoint.build(asked.model_config()).state_dict()
    after: dict[str, Tensor] = checkpoint.load(trained.folder)[0].state_dict()
    moved = {"image": 0.0, "text": 0.0, "heads": 0.0}
    for name, value in after.items():
        part = name.split(".")[0] if ".encoder." in name else "heads"
        moved[part] = max(moved[part], float((value - before[name]).abs().max()))
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    return moved, losses


def test_a_frozen_part_does_not_move_and_a_slow_one_moves_less(few: Path, tmp_path: Path) -> None:
    moved, _ = movements(few, tmp_path / "run", optimizer={"lr": 1e-3, "rates": {"image": 0.0, "text": 1e-5}})
    assert moved["image"] == 0
    assert 0 < moved["text"] < 5e-5
    assert moved["heads"] > 1e-3


def test_dropout_is_on_while_training(few: Path, tmp_path: Path) -> None:
    _, without = movements(few, tmp_path / "without")
    _, dropping = movements(few, tmp_path / "with", dropout=0.5)
    assert dropping[0]["embed"] != pytest.approx(without[0]["embed"], rel=1e-3)


def test_a_frozen_tower_is_looked_through_once_and_gives_the_losses_of_looking_each_time(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = {"lr": 1e-3, "rates": {"image": 0.0}, "chunk": 4}
    looks: list[int] = []
    of_images = FeatureCache.of_images

    def counted(seen: FeatureCache, images: Int64Array, views: Tensor | None = None) -> TowerFeatures:
        looks.append(len(images))
        return of_images(seen, images, views)

    monkeypatch.setattr(FeatureCache, "of_images", counted)
    _, once = movements(few, tmp_path / "once", optimizer=frozen, dropout=0.1)
    assert looks
    looks.clear()
    monkeypatch.setattr(FeatureCache, "LIMIT", 0)
    _, each_time = movements(few, tmp_path / "each", optimizer=frozen, dropout=0.1)
    assert not looks
    for kept, fresh in zip(once, each_time, strict=True):
        assert kept == pytest.approx(fresh, rel=1e-5)


def test_a_frozen_tower_sees_views_once_and_a_resumed_run_draws_the_same(few: Path, tmp_path: Path) -> None:
    frozen = {"lr": 1e-3, "rates": {"image": 0.0}}
    _, plain = movements(few, tmp_path / "plain", optimizer=frozen)
    _, views = movements(few, tmp_path / "views", optimizer=frozen, augment={"crop": 0.5, "views": 3})
    assert views[1] != pytest.approx(plain[1], rel=1e-6)
    settings = {"optimizer": frozen, "augment": {"crop": 0.5, "views": 3}, "schedule": {"steps": 4}}
    recipe = parse_recipe(shapes.recipe(few, few, hidden=16, data={"batch_size": 8}, **settings), "it")
    whole = checkpoint.load(train(recipe, tmp_path / "whole").folder)[0].state_dict()
    train(recipe, tmp_path / "parts", stop_after=2)
    parts = checkpoint.load(train(recipe, tmp_path / "parts", resume=True).folder)[0].state_dict()
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)
    with pytest.raises(RecipeError, match="is 3, which needs a frozen image tower"):
        movements(few, tmp_path / "trained", augment={"views": 3})


def test_a_frozen_tower_looks_each_time_where_pictures_are_augmented(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FeatureCache, "of", lambda *_: pytest.fail("looked once at pictures that change each time"))
    frozen = {"lr": 1e-3, "rates": {"image": 0.0}}
    moved, _ = movements(few, tmp_path / "run", optimizer=frozen, augment={"crop": 0.5})
    assert moved["image"] == 0


def test_training_leaves_out_attention_that_plans_for_every_shape(few: Path, tmp_path: Path) -> None:
    assert torch.backends.cuda.cudnn_sdp_enabled()
    settings: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 1}}
    used: list[bool] = []
    recipe = parse_recipe(shapes.recipe(few, **settings), "it")
    train(recipe, tmp_path / "run", report=lambda _: used.append(torch.backends.cuda.cudnn_sdp_enabled()))
    assert used == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled()
