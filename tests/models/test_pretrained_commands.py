"""Published models in the commands: what a matcher alone may be asked for, and which models are listed."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner, Result

from collection.made_up import picture, put
from models import published
from sightline import cli
from sightline.demo.shapes import shapes, write
from sightline.registry.loader import load
from sightline.registry.published import PUBLISHED_MODELS


def run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, [str(argument) for argument in arguments])


def done(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(4):
        put(tmp_path / "photos" / f"{number}.png", picture(number))
    return tmp_path / "photos"


def test_a_model_of_regions_becomes_a_bundle_that_matches_as_it_does(tmp_path: Path) -> None:
    published.save_regions(published.region_weights("uniter"), tmp_path / "uniter")
    assert "bundle: match, float32" in done("export", tmp_path / "uniter", "--out", tmp_path / "bundle")
    bundle, model = load(tmp_path / "bundle"), load(tmp_path / "uniter")
    regions = np.random.default_rng(0).standard_normal((2, 4, published.FEATURES + 7)).astype(np.float32)
    logits = []
    for each in (bundle, model):
        images, texts = each.encode_images(regions), each.encode_texts(["a red dog", "the green grass"])
        assert images.states is not None
        assert texts.states is not None
        logits.append(each.match(texts.states, texts.mask, images.states, images.mask))
    np.testing.assert_allclose(*logits, atol=1e-4)
    assert abs(logits[0][0] - logits[0][1]) > 1e-3


def test_a_matcher_alone_can_rerank_for_another_model_and_nothing_else(
    tiny_bundle: Path, photos: Path, tmp_path: Path
) -> None:
    published.vilt(tmp_path / "vilt")
    captions = write(tmp_path / "shapes", itertools.islice(shapes(seed=0), 6))
    for refused in (
        run("index", photos, "--model", tmp_path / "vilt"),
        run("eval", tmp_path / "vilt", captions),
    ):
        assert "vilt has no embeddings" in str(refused.exception)
    result = tmp_path / "result.json"
    done("eval", tiny_bundle, captions, "--rerank", "3", "--matcher", tmp_path / "vilt", "--json", result)
    assert json.loads(result.read_text())["stages"] == ["embed", "match@3"]


def test_what_to_type_next_names_a_model_that_the_collection_cannot_find_again(
    photos: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    published.clip(tmp_path / "clip")
    told = done("index", photos, "--model", tmp_path / "clip").splitlines()[-1]
    assert told.endswith(f" --model {tmp_path / 'clip'}")
    assert "1  " in done("search", "a red dog", *told.split()[-4:])
    assert "--model" not in done("index", photos, "--at", tmp_path / "at", "--model", tiny_bundle)


def test_the_models_that_are_known_are_listed_with_what_they_can_do() -> None:
    told = done("models")
    listed = json.loads(done("models", "--json"))["known"]
    assert [one["model"] for one in listed] == [one.model for one in PUBLISHED_MODELS]
    for one in PUBLISHED_MODELS:
        assert one.model in told
    (clip,) = (one for one in listed if one["model"] == "hf:openai/clip-vit-base-patch32")
    assert clip == {**clip, "abilities": ["embed"], "languages": ["en"], "megabytes": 605.1}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("openai/clip-vit-base-patch32", "CLIP"),
        ("google/siglip-base-patch16-224", "Siglip"),
        ("dandelin/vilt-b32-finetuned-coco", "Vilt"),
    ],
)
def test_the_sizes_of_known_models_are_those_of_their_architectures(name: str, family: str) -> None:
    model = {"CLIP": "CLIPModel", "Siglip": "SiglipModel", "Vilt": "ViltForImageAndTextRetrieval"}[family]
    with torch.device("meta"):
        made = getattr(transformers, model)(getattr(transformers, f"{family}Config")())
    (one,) = (one for one in PUBLISHED_MODELS if one.name == name)
    assert one.parameters == sum(parameter.numel() for parameter in made.parameters())
