"""From a picture to a model's numbers: the three resize rules, the layout, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from media.sample_pictures import QUARTERS, encoded, photo, quarters, source
from sightline.errors import MediaError, ModelError
from sightline.media import Preprocess, fit, normalise, open_image, to_pixels
from sightline.media.pixels import open_for_model

MEAN, STD = (0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)


def rule(size: int = 32, **changes: Any) -> Preprocess:
    return Preprocess(size, **({"mean": MEAN, "std": STD} | changes))


def resize_then_crop(image: Image.Image, size: int, resample: Image.Resampling) -> npt.NDArray[np.uint8]:
    """What torchvision's Resize(size) and CenterCrop(size) do, step by step."""
    width, height = image.size
    if width <= height:
        resized = image.resize((size, int(size * height / width)), resample)
    else:
        resized = image.resize((int(size * width / height), size), resample)
    left, top = round((resized.width - size) / 2.0), round((resized.height - size) / 2.0)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 70), st.sampled_from(["bicubic", "bilinear"]))
def test_crop_is_resize_and_centre_crop(width: int, height: int, size: int, interpolation: Any) -> None:
    image = photo(width, height).point(
        lambda level: 60 + level // 2
    )  # no level near black or white, where filters clip
    expected = resize_then_crop(image, size, Image.Resampling[interpolation.upper()])
    fitted = fit(image, rule(size, interpolation=interpolation))
    difference = np.abs(fitted.astype(int) - expected)
    assert difference.max() <= 2  # Pillow may resample the rows or the columns first, and rounds in between
    assert difference.mean() < 0.5


def test_squash_brings_both_sides_to_size() -> None:
    image = photo(90, 40)
    assert np.array_equal(
        fit(image, rule(resize="squash")), np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC))
    )


@pytest.mark.parametrize("sides", [(90, 30), (30, 90)])
def test_pad_keeps_the_whole_picture_between_bars_of_the_mean_colour(sides: tuple[int, int]) -> None:
    fitted = fit(Image.new("RGB", sides, (255, 0, 0)), rule(30, resize="pad"))
    if sides[1] > sides[0]:
        fitted = fitted.transpose(1, 0, 2)
    assert (fitted[10:20] == (255, 0, 0)).all()
    assert (fitted[:10] == [round(255 * value) for value in MEAN]).all()
    assert (fitted[20:] == [round(255 * value) for value in MEAN]).all()
    assert np.abs(normalise(fitted, rule(30))[:, 0]).max() < 0.01


@pytest.mark.parametrize("resize", ["squash", "crop", "pad"])
@pytest.mark.parametrize("sides", [(1, 1), (1, 10_000), (10_000, 1), (3, 2), (7000, 64)])
def test_extreme_shapes_fit(resize: Any, sides: tuple[int, int]) -> None:
    fitted = fit(Image.new("RGB", sides, (9, 99, 199)), rule(224, resize=resize))
    assert fitted.shape == (224, 224, 3)
    assert fitted.dtype == np.uint8
    assert fitted[111, 111].tolist() == [9, 99, 199]


def test_a_picture_of_the_right_size_is_left_alone() -> None:
    image = photo(32, 32)
    for resize in ("squash", "crop", "pad"):
        assert np.array_equal(fit(image, rule(resize=resize)), np.asarray(image))


def test_fitted_pixels_may_be_written_to() -> None:
    for resize in ("squash", "crop", "pad"):
        assert fit(photo(50, 40), rule(resize=resize)).flags.writeable


@pytest.mark.parametrize("batch", [(), (5,), (2, 3), (0,)])
def test_normalise_is_the_formula_in_contiguous_channels_first_floats(batch: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*batch, 16, 16, 3), dtype=np.uint8)
    expected = np.moveaxis((pixels.astype(np.float64) / 255 - MEAN) / STD, -1, -3)
    normalised = normalise(pixels, rule(16))
    assert normalised.dtype == np.float32
    assert normalised.shape == (*batch, 3, 16, 16)
    assert normalised.flags.c_contiguous
    np.testing.assert_allclose(normalised, expected, atol=2e-6)


def test_normalise_leaves_its_input_and_its_constants_alone() -> None:
    pixels = np.full((4, 4, 3), 7, dtype=np.uint8)
    first = normalise(pixels, rule(4)).copy()
    normalise(pixels, rule(4))[:] = 0
    assert (pixels == 7).all()
    assert np.array_equal(normalise(pixels, rule(4)), first)


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 4, 3)), np.zeros((3, 4, 4), dtype=np.uint8), np.zeros(3, dtype=np.uint8)]
)
def test_normalise_refuses_other_shapes_and_types(pixels: Any) -> None:
    with pytest.raises(ModelError, match="shape"):
        normalise(pixels, rule(4))


@pytest.mark.parametrize("resize", ["squash", "crop", "pad"])
def test_to_pixels_opens_fits_and_normalises(resize: Any) -> None:
    preprocess = rule(48, resize=resize)
    data = encoded(quarters(), "PNG")
    expected = normalise(fit(open_image(source(data)), preprocess), preprocess)
    assert np.array_equal(to_pixels(source(data), preprocess), expected)
    assert expected.shape == (3, 48, 48)
    red = (np.array(QUARTERS[0]) / 255 - MEAN) / STD
    np.testing.assert_allclose(expected[:, 15, 8], red, atol=0.05)


@pytest.mark.parametrize("resize", ["squash", "crop", "pad"])
@pytest.mark.parametrize("sides", [(640, 480), (511, 129), (225, 224), (450, 603), (161, 999)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_scaled_decoding_stays_within_a_few_gray_levels_of_full_decoding(
    resize: Any, sides: tuple[int, int], orientation: int
) -> None:
    preprocess = Preprocess(32, resize=resize, mean=(0, 0, 0), std=(1, 1, 1))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(photo(*sides), "JPEG", quality=92, exif=exif)
    assert open_image(source(data), at_least=64).size != open_image(source(data)).size
    full = fit(open_image(source(data)), preprocess).astype(int)
    scaled = to_pixels(source(data), preprocess).transpose(1, 2, 0) * 255
    difference = np.abs(scaled - full)
    assert difference.mean() < 1
    assert difference.max() < 8


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_model_may_want_jpegs_decoded_at_a_smaller_size(orientation: int) -> None:
    fine = Preprocess(32, resize="squash", mean=(0, 0, 0), std=(1, 1, 1))
    coarse = replace(fine, decode_at_least=32)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = source(encoded(photo(640, 480), "JPEG", quality=92, exif=exif))
    assert sorted(open_for_model(image, fine).image.size) == [120, 160]
    assert sorted(open_for_model(image, coarse).image.size) == [60, 80]
    difference = np.abs(to_pixels(image, coarse) - to_pixels(image, fine)) * 255
    assert 0 < difference.mean() < 4


def test_to_pixels_passes_the_limit_on() -> None:
    with pytest.raises(MediaError, match="too many pixels"):
        to_pixels(source(encoded(quarters(), "PNG")), rule(), max_pixels=100)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"size": 0},
        {"decode_at_least": 31},
        {"size": -3},
        {"size": 2.5},
        {"size": True},
        {"size": 10**6},
        {"resize": "stretch"},
        {"interpolation": "nearest"},
        {"mean": (0.5, 0.5)},
        {"mean": "grey"},
        {"mean": 0.5},
        {"mean": (0.5, 0.5, float("nan"))},
        {"std": (0.2, 0.0, 0.2)},
        {"std": (0.2, -0.1, 0.2)},
        {"std": (0.2, 0.2, float("inf"))},
    ],
)
def test_a_nonsensical_preprocess_is_refused_with_the_value_and_the_way_out(nonsense: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        rule(**({"size": 32} | nonsense))
    assert repr(next(iter(nonsense.values()))) in caught.value.what
    assert caught.value.way_out.startswith(("Use ", "Set ", "Choose "))


def test_a_preprocess_from_json_lists_equals_the_one_it_was_written_from() -> None:
    assert rule(mean=list(MEAN), std=list(STD)) == rule()
    assert hash(rule(mean=list(MEAN))) == hash(rule())
