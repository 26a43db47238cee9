"""An image in memory is taken for what it would be as a file."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from media.sample_pictures import encoded, quarters, tiff_by_hand
from sightline.errors import MediaError
from sightline.media import image_source, open_image

RAMP = np.array([[0, 257, 32768, 65535], [1000, 20000, 40000, 60000]], dtype=np.uint16)


def pixels(image: Any) -> npt.NDArray[np.uint8]:
    return np.asarray(open_image(image_source(image)))


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(RAMP),
        Image.frombytes("I;16B", (4, 2), RAMP.astype(">u2").tobytes()),
        Image.fromarray(RAMP.astype(np.int32)),
        Image.fromarray(RAMP.astype(np.float32) / 65535),
        quarters().convert("CMYK"),
        quarters().convert("1"),
        quarters().quantize(4),
        quarters(),
    ],
    ids=lambda image: image.mode,
)
def test_a_pil_image_is_converted_like_a_file(image: Image.Image) -> None:
    np.testing.assert_array_equal(pixels(image), pixels(encoded(image, "TIFF")))


@pytest.mark.parametrize("mode", ["LA", "La", "RGBA", "RGBa", "PA"])
def test_transparency_of_a_pil_image_is_laid_over_white_as_that_of_a_file(mode: str) -> None:
    rgba = quarters().convert("RGBA")
    rgba.putalpha(Image.linear_gradient("L").resize(rgba.size))
    image = rgba.convert("LA").convert(mode) if mode == "La" else rgba.convert(mode)
    expected = pixels(encoded(image.convert("LA" if mode in ("LA", "La") else "RGBA"), "PNG"))
    np.testing.assert_array_equal(pixels(image), expected)


def test_a_pil_image_of_twelve_bits_uses_the_whole_range() -> None:
    data = tiff_by_hand(2, 2, 12, struct.pack("6B", 0xFF, 0xF0, 0x00, 0x80, 0x0F, 0xFF))
    np.testing.assert_array_equal(pixels(Image.open(io.BytesIO(data))), pixels(data))


def test_a_pil_image_is_turned_upright_and_left_as_it_was() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(quarters(), "PNG", exif=exif)
    image = Image.open(io.BytesIO(data))
    np.testing.assert_array_equal(pixels(image), pixels(data))
    assert (image.size, image.getexif()[0x0112]) == ((64, 48), 6)


def cut_off() -> Image.Image:
    return Image.open(io.BytesIO(encoded(quarters(), "PNG")[:-60]))


def closed() -> Image.Image:
    image = quarters()
    image.close()
    return image


def closed_file() -> Image.Image:
    image = Image.open(io.BytesIO(encoded(quarters(), "PNG")))
    image.close()
    return image


@pytest.mark.parametrize("make", [cut_off, closed, closed_file, lambda: Image.new("RGB", (0, 0))])
def test_a_pil_image_that_cannot_be_read_is_a_media_error(make: Callable[[], Image.Image]) -> None:
    with pytest.raises(MediaError, match=r"^the image: (cannot be read|has no pixels)"):
        image_source(make())


def test_bytes_may_come_in_any_container(tmp_path: Path) -> None:
    data = encoded(quarters(), "PNG")
    path = tmp_path / "quarters.png"
    path.write_bytes(data)
    written = io.BytesIO()
    written.write(data)  # which leaves the position at the end
    with path.open("rb") as file, path.open("rb", buffering=0) as raw:
        for image in (data, bytearray(data), memoryview(data), io.BytesIO(data), written, file, file, raw):
            np.testing.assert_array_equal(pixels(image), pixels(path))
        assert image_source(file).name == str(path)


def test_a_file_that_is_closed_or_opened_as_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quarters.png"
    path.write_bytes(encoded(quarters(), "PNG"))
    with path.open("rb") as file:
        pass
    with pytest.raises(MediaError, match=r"quarters\.png: cannot be read: .*closed"):
        image_source(file)
    with path.open() as text, pytest.raises(MediaError, match="was opened as text") as caught:
        image_source(text)  # type: ignore[arg-type]
    assert "'rb'" in caught.value.way_out
    with path.open("wb") as writing, pytest.raises(MediaError, match="cannot be read"):
        image_source(writing)
