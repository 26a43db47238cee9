from pathlib import Path

import pytest
import torch

import tiny
from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.towers import TowerConfig
from sightline.training.weight_average import blend


@pytest.fixture
def source(tmp_path: Path) -> str:
    """An image encoder of the same shape as the tiny model's, with other weights."""
    torch.manual_seed(7)
    encoder, _ = towers.build(TowerConfig(config=tiny.VISION), "vision")
    encoder.save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_blend_lies_on_the_line_between_trained_and_source(source: str, share: float) -> None:
    trained, blended = tiny.retriever(tiny.DUAL), tiny.retriever(tiny.DUAL)
    original, _ = towers.build(TowerConfig(source), "vision")
    blend(blended, "image", source, share)
    before = dict(trained.parts()["image"].named_parameters())
    other = dict(original.named_parameters())
    for name, value in blended.parts()["image"].named_parameters():
        torch.testing.assert_close(value, share * before[name] + (1 - share) * other[name])
    for one, same in zip(trained.parts()["text"].parameters(), blended.parts()["text"].parameters(), strict=True):
        torch.testing.assert_close(one, same)


def test_what_cannot_be_blended_is_refused(source: str, tmp_path: Path) -> None:
    model = tiny.retriever(tiny.DUAL)
    with pytest.raises(ModelError, match=r"blend.share cannot be 1\.5"):
        blend(model, "image", source, 1.5)
    with pytest.raises(ModelError, match="no part 'ears'"):
        blend(model, "ears", source, 0.5)
    other, _ = towers.build(TowerConfig(config={**tiny.VISION, "num_hidden_layers": 2}), "vision")
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match="do not fit this model's image encoder"):
        blend(model, "image", str(tmp_path / "other"), 0.5)
