"""Two processes that train together do what one process does alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from sightline.errors import SightlineError
from sightline.models import checkpoint
from sightline.training import distributed
from sightline.training.distributed import World
from sightline.training.gradients import Side, backward
from sightline.training.recipe import parse_recipe
from training import processes, shapes
from training.sides import LOSSES, REPEATED_IDS, gradients, sides

KINDS = ("dual-shared", "single")
CHUNKS = {"dual-shared": (2,), "single": (0,)}


def save_gradients(out: Path) -> None:
    """Save this process's losses and gradients of every objective, with one image twice in the batch."""
    world = distributed.join()
    found = {
        (kind, name, chunk): gradients(
            tiny.retriever(tiny.PIXEL_MODELS[kind]), LOSSES[name], chunk, REPEATED_IDS, world
        )
        for kind in KINDS
        for name in LOSSES
        for chunk in CHUNKS[kind]
    }
    torch.save(found, out / f"{world.rank}.pt")


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    out = tmp_path_factory.mktemp("gradients")
    processes.together(save_gradients, out)
    return [torch.load(out / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_gradients_of_one(kind: str, name: str, by_two: list[dict[Any, Any]]) -> None:
    losses, alone = gradients(tiny.retriever(tiny.PIXEL_MODELS[kind]), LOSSES[name], 0, REPEATED_IDS)
    scale = max(float(g.abs().max()) for g in alone.values() if g is not None)
    assert scale > 1e-3, "nothing to compare"
    for rank in (0, 1):
        for chunk in CHUNKS[kind]:
            shared_losses, shared = by_two[rank][kind, name, chunk]
            assert shared_losses == pytest.approx(losses, rel=1e-5)
            for parameter, gradient in alone.items():
                other = shared[parameter]
                assert (gradient is None) == (other is None), parameter
                if gradient is not None:
                    assert float((other - gradient).abs().max()) <= 1e-5 * scale, (parameter, rank, chunk)


def runs(few: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Recipes of a few steps: odd batches, captions of one picture together, crops, turns of two losses."""
    common: dict[str, Any] = {
        "hidden": 16,
        "data": {"batch_size": 15, "draw": "pairs"},
        "augment": {"crop": 0.5, "colour": 0.2},
        "optimizer": {"lr": 1e-3, "weight_decay": 0.1, "chunk": 4},
    }
    hard = {"match": {"loss": "matching", "negatives": "hard"}}
    three = {"steps": 3}
    late = {"shrink": {"loss": "distill", "on": "fragments", "student_temperature": 1.0}}
    fast = {"shrink": {"loss": "distill", "student_temperature": 0.1}}
    by_match = {"model": str(few.parent / "teacher" / "best"), "by": "match", "chunk": 7}
    related = {"relation": {"loss": "relation", "heads": 4, "dropout": 0.2, "chunk": 8}}
    like = {"batch_size": 15, "neighbours": {"clusters": 4, "per_cluster": 3}}
    fragments = {"loss": "masked_fragments", "target": "classes", "classes": 8}
    masked = {"words": {"loss": "masked_words", "chunk": 3}, "fragments": fragments}
    below = {"optimizer": {**common["optimizer"], "frozen_layers": {"image": 1}}}
    turns = {"steps": 4, "run": "pattern", "pattern": shapes.PATTERN}
    return {
        "contrastive": (shapes.recipe(few, few, schedule=three, validation={"every": 2}, **common), {}),
        "hard matching": (shapes.recipe(few, losses=hard, schedule=three, **common), {}),
        "distil fragments": (
            shapes.recipe(few, losses=late, teacher={"model": by_match["model"]}, schedule=three, **common),
            {},
        ),
        "distil matching": (shapes.recipe(few, losses=fast, teacher=by_match, schedule=three, **common), {}),
        "turns": (shapes.recipe(few, losses=shapes.JOINT, schedule=turns, **common), {"save_every": 2}),
        "masked": (shapes.recipe(few, losses=masked, schedule=three, **common | below), {}),
        "relation": (shapes.recipe(few, losses=related, schedule=three, **common | {"data": like}), {}),
    }


@pytest.fixture(scope="module")
def trained(few: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    assert teacher.exists()
    alone, together = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("together")
    processes.together(processes.train_each, runs(few), together)
    processes.train_each(runs(few), alone)
    return alone, together


@pytest.mark.parametrize(
    "name", ["contrastive", "hard matching", "distil fragments", "distil matching", "turns", "masked", "relation"]
)
def test_two_processes_train_the_weights_of_one(name: str, few: Path, trained: tuple[Path, Path]) -> None:
    alone, together = (checkpoint.load(folder / name / "last")[0].state_dict() for folder in trained)
    recipe = runs(few)[name][0]
    torch.manual_seed(recipe.get("seed", 0))
    start = checkpoint.build(parse_recipe(recipe, name).model_config()).state_dict()
    moved = max(float((alone[key] - start[key]).abs().max()) for key in start)
    assert moved > 1e-3, "nothing was trained"
    limit = 1e-4 if name == "relation" else 1e-5  # its gradients are sums of far more, and rounded as often
    for key, value in alone.items():
        # A bias of keys shifts all scores of a query alike, which softmax does not see: its gradient is what rounding
        # leaves, and AdamW makes whole steps of that.
        if not key.endswith(("k_proj.bias", "key.bias")):
            assert float((together[key] - value).abs().max()) <= limit, key


def test_two_processes_keep_one_log_and_one_best_checkpoint(trained: tuple[Path, Path]) -> None:
    alone, together = (folder / "contrastive" for folder in trained)
    assert len((together / "log.jsonl").read_text().splitlines()) == 3
    assert {path.name for path in together.iterdir()} == {path.name for path in alone.iterdir()}
    assert (together / "best" / "validation.json").exists()


@pytest.mark.parametrize("count", [2, 3, 7, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shares_cover_every_row_once_and_are_even(count: int, size: int) -> None:
    rows = [list(range(count))[World(rank, size).share(count)] for rank in range(size)]
    assert [row for part in rows for row in part] == list(range(count))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_a_batch_too_small_to_share_is_refused_before_anyone_waits_for_the_others() -> None:
    model = tiny.retriever(tiny.DUAL)
    texts, images = sides(model)
    images = Side(images.encode, images.ids[:1])
    with pytest.raises(SightlineError, match=r"cannot be split among 2 processes[\s\S]*batch_size"):
        backward(model, {"it": (LOSSES["contrastive"][0], 1.0)}, texts, images, seed=0, world=World(1, 2))


def test_a_process_of_its_own_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert distributed.join() == World(0, 1)
    assert World().leads
    assert World().tell("it") == "it"
