"""ResNet and MobileViT as image towers: trained, saved, and opened again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from models.test_towers import VISION
from sightline.errors import ModelError
from sightline.models import checkpoint
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import shapes


def recipe(few: Path, config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    made = shapes.recipe(few, hidden=16, layers=1, data={"batch_size": 12}, schedule={"steps": 2}, **changes)
    made["model"] |= {"image": {"config": config}, "matcher": "none"}
    return made


@pytest.mark.parametrize("kind", ["resnet", "mobilevit"])
def test_a_convolutional_tower_trains_in_chunks_as_in_one_go(kind: str, few: Path, tmp_path: Path) -> None:
    config = {"model_type": kind, **VISION[kind]}
    firsts = []
    for chunk in (0, 5):
        asked = parse_recipe(recipe(few, config, optimizer={"lr": 1e-3, "chunk": chunk}), "it")
        folder = train(asked, tmp_path / str(chunk)).folder
        firsts.append(json.loads((tmp_path / str(chunk) / "log.jsonl").read_text().splitlines()[0]))
    whole, chunked = firsts
    assert chunked["loss"]["embed"] == pytest.approx(whole["loss"]["embed"], rel=1e-4)
    # Untrained, MobileViT's gradients are about 200,000 long, and sums in another order differ by per cents.
    assert chunked["norm"] == pytest.approx(whole["norm"], rel={"resnet": 1e-3, "mobilevit": 0.05}[kind])
    model = checkpoint.load(folder)[0]
    statistics = [tensor for name, tensor in model.state_dict().items() if name.endswith("running_var")]
    assert all(torch.equal(one, torch.ones_like(one)) for one in statistics), "those of a batch depend on its chunks"
    assert statistics


def test_what_cannot_see_is_refused_before_the_run(few: Path, tmp_path: Path) -> None:
    text = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(ModelError, match="bert cannot be an image tower"):
        train(parse_recipe(recipe(few, text), "it"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
