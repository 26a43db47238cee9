"""Regions stand where pictures stand: as bytes of a source, and as the input of a model."""

import io
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.errors import MediaError, ModelError
from sightline.media import (
    ImageBytes,
    Preprocess,
    RegionConfig,
    blank,
    load_pixels,
    open_image,
    require_pixels,
    split_padding,
    stack_inputs,
    to_input,
)
from sightline.media.regions import region_bytes

PIXELS = Preprocess(size=8, resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
REGIONS = RegionConfig(feature_dim=3, box_dim=7)


def source(count: int = 2, seed: int = 0) -> ImageBytes:
    chance = np.random.default_rng(seed)
    return ImageBytes("dog", region_bytes(chance.standard_normal((count, 3)), chance.random((count, 4))))


def png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (20, 10), "red").save(stream, "PNG")
    return stream.getvalue()


def test_a_batch_of_regions_is_padded_and_its_padding_is_told_apart() -> None:
    images = [to_input(source(count, seed=count), REGIONS) for count in (2, 4, 1)]
    batch = stack_inputs(images)
    assert batch.shape == (3, 4, 10)
    rows, mask = split_padding(batch)
    assert mask.sum(axis=1).tolist() == [2, 4, 1]
    assert np.isfinite(rows).all()
    for row, own, image in zip(rows, mask, images, strict=True):
        np.testing.assert_array_equal(row[own], image)


def test_a_batch_of_pixels_is_what_it_was() -> None:
    images = [to_input(ImageBytes("red", png()), PIXELS)] * 2
    assert stack_inputs(images).shape == (2, 3, 8, 8)


def test_each_kind_of_model_says_what_it_cannot_read() -> None:
    with pytest.raises(MediaError, match="a PNG picture, but this model reads regions") as caught:
        to_input(ImageBytes("red", png()), REGIONS)
    assert "sightline regions" in caught.value.way_out
    with pytest.raises(MediaError, match="such as the regions of a picture"):
        to_input(source(), PIXELS)
    with pytest.raises(MediaError, match="such as the regions of a picture"):
        open_image(source())
    with pytest.raises(ModelError, match="reads regions"):
        require_pixels(REGIONS)
    assert require_pixels(PIXELS) is PIXELS


@pytest.mark.parametrize("data", [source().data[:-5], b"\x93NUMPY", region_bytes(np.full((1, 7), np.nan), None)])
def test_damaged_regions_are_a_broken_picture_and_no_other(data: bytes) -> None:
    loaded = list(load_pixels([source(), ImageBytes("broken", data), source()], REGIONS))
    assert [one.error is None for one in loaded] == [True, False, True]
    assert loaded[1].error is not None
    assert loaded[1].error.name == "broken"


def test_an_input_that_shows_nothing_has_the_shape_of_any() -> None:
    assert blank(PIXELS).shape == (1, 3, 8, 8)
    assert blank(REGIONS).shape == (1, 1, 10)


@pytest.mark.parametrize("numbers", [{"box_dim": 5}, {"feature_dim": 0}])
def test_a_model_cannot_want_regions_that_there_are_not(numbers: dict[str, int]) -> None:
    with pytest.raises(ModelError):
        RegionConfig(**numbers)


def test_headers_of_arrays_are_parsed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing them in two threads at once, Python 3.11 raises a SystemError now and then."""
    load, inside = np.load, []

    def slowly(*args: Any, **options: Any) -> Any:
        inside.append(1)
        time.sleep(0.01)
        assert len(inside) == 1
        inside.pop()
        return load(*args, **options)

    monkeypatch.setattr(np, "load", slowly)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: to_input(source(seed=seed), REGIONS), range(8)))
    assert len(found) == 8
