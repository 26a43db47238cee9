"""Batches that a model cannot read are refused with the reason, and empty ones give empty arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
from sightline.bundle import Bundle
from sightline.bundle.model import Model
from sightline.errors import ModelError
from sightline.media import RegionConfig, check_batch
from sightline.models.torch_model import TorchModel

SIZE = tiny.PREPROCESS.size


@pytest.fixture(scope="module", params=["bundle", "torch"])
def model(request: pytest.FixtureRequest, tiny_bundle: Path) -> Model:
    if request.param == "bundle":
        return Bundle.open(tiny_bundle)
    return TorchModel(tiny.retriever(tiny.DUAL).eval(), tiny.tokenizer(), "tiny")


@pytest.mark.parametrize("shape", [(0, 3, SIZE, SIZE), (0,)])
def test_no_images_give_empty_arrays(model: Model, shape: tuple[int, ...]) -> None:
    one, none = (model.encode_images(np.zeros(given, np.float32)) for given in ((1, 3, SIZE, SIZE), shape))
    assert len(none) == 0
    for part in ("embedding", "mask", "fragments", "states"):
        whole, empty = getattr(one, part), getattr(none, part)
        assert (empty is None) == (whole is None)
        assert whole is None or (empty.shape, empty.dtype) == ((0, *whole.shape[1:]), whole.dtype)


def test_no_texts_give_empty_arrays(model: Model) -> None:
    one, none = model.encode_texts(["a dog"]), model.encode_texts([])
    assert none.embedding.shape == (0, one.embedding.shape[1])
    assert (len(none.mask), none.truncated is not None and len(none.truncated)) == (0, 0)
    with pytest.raises(ModelError, match="is one text"):
        model.encode_texts("")


@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        (np.zeros((2, SIZE, SIZE, 3), np.float32), r"pixels\.transpose\(0, 3, 1, 2\)"),
        (np.zeros((3, SIZE, SIZE), np.float32), r"pass pixels\[None\]"),
        (np.zeros((1, 3, SIZE, SIZE + 1), np.float32), rf"reads \[batch, 3, {SIZE}, {SIZE}\]"),
        (np.zeros((1, 4, SIZE, SIZE), np.float32), rf"pixels of shape \[1, 4, {SIZE}, {SIZE}\]"),
        (np.float32(0), r"pixels of shape \[\]"),
        (np.zeros((1, 3, SIZE, SIZE), np.uint8), "pixels of type uint8"),
        (np.full((1, 3, SIZE, SIZE), "x"), "pixels of type <U1"),
    ],
)
def test_pixels_that_the_model_does_not_read_are_refused(model: Model, pixels: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        model.encode_images(pixels)


def test_other_floats_are_read_as_float32(model: Model) -> None:
    pixels = np.random.default_rng(0).normal(size=(2, 3, SIZE, SIZE)).astype(np.float16)
    expected = model.encode_images(pixels.astype(np.float32)).embedding
    for dtype in (np.float16, np.float64):
        assert np.array_equal(model.encode_images(pixels.astype(dtype)).embedding, expected)


def test_regions_must_have_the_width_that_the_model_reads() -> None:
    wanted = RegionConfig(8, 0)
    assert check_batch(np.zeros((2, 5, 8)), wanted).dtype == np.float32
    with pytest.raises(ModelError, match=r"regions of shape \[2, 5, 9\]: the model reads \[batch, n, 8\]"):
        check_batch(np.zeros((2, 5, 9)), wanted)
