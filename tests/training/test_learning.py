"""Training from nothing works: recall on pictures never seen rises from chance to nearly all."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sightline.datasets import read_all
from sightline.evaluation import evaluate
from sightline.models.torch_model import TorchModel
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import shapes


def log(out: Path) -> Iterator[dict[str, Any]]:
    for line in (out / "log.jsonl").read_text().splitlines():
        yield json.loads(line)


def test_recall_rises_from_chance_to_above_90_percent_on_pictures_never_seen(tmp_path: Path) -> None:
    pictures = shapes.write(tmp_path / "train", shapes.shapes(seed=0, copies=12))
    unseen = shapes.write(tmp_path / "val", shapes.shapes(seed=1))
    schedule = {"steps": 180, "warmup": 0.1}
    data = shapes.recipe(pictures, unseen, schedule=schedule, validation={"every": 60})
    data["model"]["image"]["config"]["patch_size"] = 16
    data["model"]["text"]["config"]["num_hidden_layers"] = 1  # captions this plain need no more
    recipe = parse_recipe(data, "shapes")
    untrained = train(recipe, tmp_path / "untrained", stop_after=1)
    begin = evaluate(TorchModel.open(untrained.folder), read_all(unseen))
    assert begin.images == 72
    assert begin.text_to_image["R@1"] < 7  # chance is 1 in 72
    assert begin.image_to_text["R@1"] < 7

    trained = train(recipe, tmp_path / "run")
    assert trained.evaluation is not None
    assert trained.evaluation.text_to_image["R@1"] > 90
    assert trained.evaluation.image_to_text["R@1"] > 90
    again = evaluate(TorchModel.open(trained.folder), read_all(unseen))
    assert again.r_sum == trained.evaluation.r_sum, "the best checkpoint is not the one that was measured"
    entries = list(log(tmp_path / "run"))
    assert [entry["step"] for entry in entries] == list(range(1, 181))
    assert entries[0]["loss"]["embed"] > 3
    assert entries[-1]["loss"]["embed"] < 1
    assert [entry["step"] for entry in entries if "val" in entry] == [60, 120, 180]


def test_training_to_embed_and_to_match_in_turns_gives_a_matcher_that_reranks_well(tmp_path: Path) -> None:
    """An embedding of two numbers cannot tell 24 kinds of card apart; what the matcher adds, reranking must gain.

    Both towers stay as they were made, at random, and their outputs are computed once: the matcher is on its own.
    """
    pictures = shapes.write(tmp_path / "train", shapes.cards(seed=0, copies=20))
    unseen = shapes.write(tmp_path / "val", shapes.cards(seed=1))
    small = {"embedding_dim": 2, "matcher": "own"}
    data = shapes.recipe(
        pictures,
        model=small,
        data={"batch_size": 24},
        losses={"embed": {"loss": "contrastive"}, "match": {"loss": "matching", "negatives": "random"}},
        schedule={"steps": 240, "warmup": 0.1, "run": "pattern", "pattern": shapes.PATTERN},
        optimizer={"lr": 3e-3, "rates": {"image": 0.0, "text": 0.0}},
    )
    data["model"]["image"]["config"]["patch_size"] = 16
    trained = train(parse_recipe(data, "cards"), tmp_path / "run")
    entries = list(log(tmp_path / "run"))
    assert [next(iter(entry["loss"])) for entry in entries[:6]] == ["embed", "embed", "match"] * 2
    losses = [entry["loss"]["match"] for entry in entries if "match" in entry["loss"]]
    assert sum(losses[:10]) / 10 == pytest.approx(0.69, abs=0.06)  # knows nothing: log 2
    assert sum(losses[-10:]) / 10 < 0.5
    model, records = TorchModel.open(trained.folder), read_all(unseen)
    embed = evaluate(model, records)
    rerank = evaluate(model, records, rerank=24, fusion="logit_add", weight=10.0)
    assert rerank.r_sum > embed.r_sum + 20
    assert rerank.text_to_image["R@1"] >= embed.text_to_image["R@1"]
    assert rerank.image_to_text["R@1"] >= embed.image_to_text["R@1"]
