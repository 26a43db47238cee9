"""Images that show nothing."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from sightline.media import ImageBytes, Preprocess
from sightline.media.pixels import is_blank, open_for_model

PREPROCESS = Preprocess(size=32, resize="pad", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def blank(image: Image.Image, format: str = "PNG") -> bool:
    file = io.BytesIO()
    image.save(file, format)
    return is_blank(open_for_model(ImageBytes("image", file.getvalue()), PREPROCESS))


@pytest.mark.parametrize("colour", ["white", "black", (12, 200, 77)])
@pytest.mark.parametrize(("format", "size"), [("PNG", (64, 64)), ("JPEG", (500, 90))])
def test_one_colour_is_blank(colour: str, format: str, size: tuple[int, int]) -> None:
    assert blank(Image.new("RGB", size, colour), format)


def test_tiny_images_are_blank_whatever_they_show() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (8, 40, 3), dtype=np.uint8)
    assert blank(Image.fromarray(noise))


def test_a_line_of_text_on_a_white_page_is_not_blank() -> None:
    page = Image.new("RGB", (600, 800), "white")
    ImageDraw.Draw(page).text((50, 60), "Dear reader, this page is nearly empty.", fill="black")
    assert not blank(page)


def test_a_dark_photo_and_a_soft_gradient_are_not_blank() -> None:
    gradient = np.tile(np.linspace(100, 130, 64).astype(np.uint8)[:, None, None], (1, 64, 3))
    assert not blank(Image.fromarray(gradient))
    dark = np.random.default_rng(0).integers(0, 40, (4, 4, 3), dtype=np.uint8)
    assert not blank(Image.fromarray(dark).resize((64, 64)))
