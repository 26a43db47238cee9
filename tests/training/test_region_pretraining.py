"""LightningDOT's own setting (paper 4): two towers, of which one reads regions; pre-trained, resumed, exported."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tiny
from sightline.bundle import Bundle
from sightline.datasets import read_all
from sightline.errors import ModelError
from sightline.evaluation import evaluate
from sightline.media import stack_inputs
from sightline.models import TowerConfig, checkpoint
from sightline.models.torch_model import TorchModel
from sightline.onnx_export.exporter import export
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import region_cards

TASKS = {
    "cmr": {"loss": "contrastive", "weight": 16},
    "vmlm": {"loss": "masked_words", "weight": 8},
    "smrfr": {"loss": "masked_fragments", "weight": 4},
    "smrc": {"loss": "masked_fragments", "target": "classes", "classes": 12, "weight": 4},
}


def recipe(store: Path, **changes: Any) -> dict[str, Any]:
    """A two-tower model whose image reader reads regions."""
    made = region_cards.recipe(store, **changes)
    encoder = made["model"].pop("transformer")["config"]
    made["model"] |= {"kind": "dual_stream", "matcher": "none", "text_pooling": "first", "text": {"config": encoder}}
    made["model"]["image_reader"] = {"config": {**encoder, "vocab_size": 2}}
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return region_cards.store(tmp_path_factory.mktemp("regions") / "train", 0, copies=6, everywhere=True)


def losses(out: Path, name: str) -> list[float]:
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [entry["loss"][name] for entry in entries if name in entry["loss"]]


def test_every_task_learns_and_the_model_finds_pictures_never_seen(store: Path, tmp_path: Path) -> None:
    schedule = {"steps": 140, "run": "random", "warmup": 0.1}
    batches = {"draw": "pairs", "batch_tokens": 500}
    data = recipe(store, data=batches, losses=TASKS, schedule=schedule)
    train(parse_recipe(data, "regions"), tmp_path / "run")
    for name in TASKS:
        found = losses(tmp_path / "run", name)
        few = max(3, len(found) // 6)
        assert sum(found[-few:]) < 0.9 * sum(found[:few]), name
    centres = load_file(tmp_path / "run" / "last" / "optimizer.safetensors")["losses/smrc.centres"]
    assert centres.shape == (12, region_cards.DIM), "classes are of features alone, not of boxes"
    unseen = region_cards.store(tmp_path / "unseen", 1, split="test", everywhere=True)
    found = evaluate(TorchModel.open(tmp_path / "run" / "best"), read_all(unseen))
    assert found.text_to_image["R@5"] > 70  # chance is 5 in 24


def test_a_run_that_was_interrupted_ends_with_the_same_weights(store: Path, tmp_path: Path) -> None:
    def run(out: str, **options: Any) -> None:
        tasks = {name: TASKS[name] for name in ("smrc", "smrfr")}
        schedule = {"steps": 4, "run": "pattern", "pattern": ["smrc", "smrfr"]}
        data = recipe(store, losses=tasks, schedule=schedule, data={"draw": "pairs", "batch_tokens": 300})
        train(parse_recipe(data, "regions"), tmp_path / out, **options)

    run("whole")
    run("halves", stop_after=2)
    run("halves", resume=True)
    one, other = (checkpoint.load(tmp_path / name / "last")[0].state_dict() for name in ("whole", "halves"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_bundle_encodes_regions_as_its_model_does(tmp_path: Path) -> None:
    shallow = TowerConfig(config={**tiny.TEXT, "num_hidden_layers": 1})  # every layer takes seconds to export
    config = dataclasses.replace(tiny.REGION_MODELS["dual-reader"], matcher="none", text=shallow)  # type: ignore[call-arg]
    retriever = tiny.retriever(config)
    export(retriever, tiny.tokenizer(), tmp_path / "bundle", name="regions")
    model, exported = TorchModel(retriever, tiny.tokenizer(), "regions"), Bundle.open(tmp_path / "bundle")
    assert exported.preprocess == model.preprocess == tiny.REGION_MODEL.regions
    chance = np.random.default_rng(0)
    batch = stack_inputs([chance.standard_normal((count, 16)).astype(np.float32) for count in (4, 1, 6)])
    one, other = exported.encode_images(batch), model.encode_images(batch)
    np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-4)
    for row in range(len(batch)):
        np.testing.assert_allclose(one.row(row).fragments, other.row(row).fragments, atol=1e-4)


def test_a_checkpoint_of_regions_comes_back_as_it_was(tmp_path: Path) -> None:
    made = tiny.retriever(tiny.REGION_MODELS["dual-reader"])
    checkpoint.save(made, tiny.tokenizer(), tmp_path / "saved")  # type: ignore[arg-type]
    found, _ = checkpoint.load(tmp_path / "saved")
    assert found.preprocess == made.preprocess
    assert found.parts().keys() == {"text", "image_reader"}
    one, other = made.state_dict(), found.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"codes": 2}, "codes is 2, but a model that reads regions has no image tower"),
        ({"pool_layer": 1}, "pool_layer is 1, but a model that reads regions has no image tower"),
        ({"matcher_layer": 1}, "matcher_layer is 1, but a model that reads regions has no image tower"),
        ({"pool": "kmeans"}, "an image_reader reads every region, so regions cannot be pooled"),
        ({"image": tiny.DUAL.image}, "either an image tower or regions"),
        ({"regions": None}, "either an image tower or regions"),
        ({"regions": None, "image": tiny.DUAL.image}, "needs to know the size of its images"),
    ],
    ids=["codes", "pool-layer", "matcher-layer", "clusters", "both", "neither", "no-size"],
)
def test_what_belongs_to_an_image_tower_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        dataclasses.replace(tiny.REGION_MODELS["dual-reader"], **changes)
