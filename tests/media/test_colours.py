"""Every way to store colours comes out as the colours a person would see, on white where there is nothing."""

import io
import struct

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms

from media.sample_pictures import (
    QUARTERS,
    RED,
    centres,
    encoded,
    png_by_hand,
    png_chunk,
    quarters,
    source,
    tiff_by_hand,
)
from sightline.media import ImageBytes, open_image
from sightline.media.jpeg import to_jpeg

RAMP = np.array([[0, 257, 32768, 65535], [1000, 20000, 40000, 60000]], dtype=np.uint16)


def opened(data: bytes) -> npt.NDArray[np.uint8]:
    return np.asarray(open_image(source(data)))


def gray_of(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    assert (pixels == pixels[..., :1]).all()
    return pixels[..., 0]


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "RGBA", "RGBX", "P"])
def test_colours_survive_every_mode(mode: str) -> None:
    image = quarters().convert(mode) if mode != "P" else quarters().quantize(16)
    np.testing.assert_allclose(centres(open_image(source(encoded(image, "TIFF")))), QUARTERS, atol=8)


def test_an_inverted_cmyk_jpeg_of_adobe_programs_is_not_a_negative() -> None:
    image = quarters().convert("CMYK")
    data = encoded(image, "JPEG", quality=95)
    assert b"Adobe" in data
    np.testing.assert_allclose(centres(open_image(source(data))), QUARTERS, atol=12)


def test_lab_is_understood() -> None:
    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    image = ImageCms.applyTransform(quarters(), to_lab)
    assert image is not None
    np.testing.assert_allclose(centres(open_image(source(encoded(image, "TIFF")))), QUARTERS, atol=8)


def test_one_bit_is_black_and_white() -> None:
    image = Image.new("1", (8, 8))
    image.paste(1, (4, 0, 8, 8))
    assert gray_of(opened(encoded(image, "PNG")))[0].tolist() == [0] * 4 + [255] * 4


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_gray_is_gray(file_format: str) -> None:
    pixels = opened(encoded(Image.new("L", (8, 8), 100), file_format))
    np.testing.assert_allclose(pixels, 100, atol=2)


def test_sixteen_bit_gray_is_scaled_and_not_clipped() -> None:
    for data in (
        png_by_hand(RAMP, 16, 0),
        encoded(Image.fromarray(RAMP), "TIFF"),
        encoded(Image.fromarray(RAMP), "PNG"),
    ):
        assert gray_of(opened(data)).tolist() == (RAMP >> 8).tolist()


def test_big_endian_sixteen_bit_gray_is_scaled() -> None:
    image = Image.frombytes("I;16B", (4, 2), RAMP.astype(">u2").tobytes())
    assert gray_of(opened(encoded(image, "TIFF"))).tolist() == (RAMP >> 8).tolist()


def test_sixteen_bit_pgm_is_scaled() -> None:
    data = b"P5 4 2 65535\n" + RAMP.astype(">u2").tobytes()
    np.testing.assert_allclose(gray_of(opened(data)), RAMP / 257, atol=1)


def test_twelve_bit_gray_uses_the_whole_range() -> None:
    pixels = struct.pack("6B", 0xFF, 0xF0, 0x00, 0x80, 0x0F, 0xFF)  # 4095 and 0, 2048 and 4095
    assert gray_of(opened(tiff_by_hand(2, 2, 12, pixels))).tolist() == [[255, 0], [128, 255]]


def test_sixteen_bits_a_channel_are_scaled() -> None:
    colours = np.array([[(65535, 32768, 257), (1000, 20000, 60000)]], dtype=np.uint16)
    assert opened(png_by_hand(colours, 16, 2)).tolist() == (colours >> 8).tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 100.0, 255.0], [0, 100, 255]),
        ([0.0, 257.0, 65535.0], [0, 1, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([-3e38, 0.0, 3e38], [0, 128, 255]),
        ([0.0, 5e5, 1e6], [0, 128, 255]),
        ([float("nan"), 1.0, 0.5], [0, 255, 128]),
        ([float("nan"), float("inf"), 7.0], [0, 0, 7]),
        ([float("nan")] * 3, [0, 0, 0]),
        ([-5.0, -5.0, -5.0], [0, 0, 0]),
    ],
)
def test_floats_are_scaled_by_the_range_they_use(values: list[float], expected: list[int]) -> None:
    image = Image.fromarray(np.array([values], dtype=np.float32))
    assert gray_of(opened(encoded(image, "TIFF"))).tolist() == [expected]


def test_long_integers_are_scaled_by_the_range_they_use() -> None:
    for values, expected in (
        ([0, 100, 255], [0, 100, 255]),
        ([0, 257, 65535], [0, 1, 255]),
        ([0, 5, 10**6], [0, 0, 255]),
        ([-4, 0, 4], [0, 128, 255]),
    ):
        image = Image.fromarray(np.array([values], dtype=np.int32))
        assert gray_of(opened(encoded(image, "TIFF"))).tolist() == [expected]


@pytest.mark.parametrize(
    ("mode", "file_format"), [("RGBA", "PNG"), ("RGBA", "WEBP"), ("RGBA", "TIFF"), ("LA", "PNG"), ("PA", "TIFF")]
)
def test_transparency_is_laid_over_white(mode: str, file_format: str) -> None:
    rgba = Image.new("RGBA", (40, 40), (*RED, 255))
    rgba.paste((0, 0, 0, 0), (20, 0, 40, 40))
    image = rgba.convert(mode)
    options = {"lossless": True} if file_format == "WEBP" else {}
    pixels = opened(encoded(image, file_format, **options))
    expected = np.asarray(image.convert("RGBA"))[20, 5, :3]
    np.testing.assert_allclose(pixels[20, 5], expected, atol=2)
    assert pixels[20, 30].tolist() == [255, 255, 255]


def test_half_transparency_is_half_white() -> None:
    pixels = opened(encoded(Image.new("RGBA", (4, 4), (200, 0, 100, 128)), "PNG"))
    np.testing.assert_allclose(pixels[0, 0], [227, 127, 177], atol=1)


def test_a_transparent_palette_entry_is_white() -> None:
    image = quarters().quantize(4)
    transparent = image.getpixel((60, 5))
    for file_format in ("PNG", "GIF"):
        pixels = opened(encoded(image, file_format, transparency=transparent))
        assert pixels[5, 60].tolist() == [255, 255, 255]
        np.testing.assert_allclose(pixels[5, 5], RED, atol=4)


def test_a_palette_with_a_transparency_for_each_entry_is_blended() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 200, 0, 0])
    image.putpixel((1, 0), 1)
    pixels = opened(encoded(image, "PNG", transparency=bytes([0, 128])))
    np.testing.assert_allclose(pixels[0], [[255, 255, 255], [227, 127, 127]], atol=1)


@pytest.mark.parametrize("depth", [8, 16])
def test_a_gray_level_or_a_colour_declared_transparent_is_white(depth: int) -> None:
    step = 1 if depth == 8 else 257
    gray = np.array([[10, 20]]) * step
    data = png_by_hand(gray, depth, 0, extra=png_chunk(b"tRNS", struct.pack(">H", 20 * step)))
    assert gray_of(opened(data)).tolist() == [[10, 255]]
    if depth == 8:
        colours = np.array([[(10, 20, 30), (40, 50, 60)]])
        data = png_by_hand(colours, depth, 2, extra=png_chunk(b"tRNS", struct.pack(">HHH", 40, 50, 60)))
        assert opened(data).tolist() == [[[10, 20, 30], [255, 255, 255]]]


@pytest.mark.parametrize(("mode", "kept"), [("RGB", True), ("L", False)])
def test_a_smaller_copy_has_the_colour_profile_of_the_picture(mode: str, kept: bool) -> None:
    """Else the thumbnail of a photo with many colours would look paler than the photo."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    content = io.BytesIO()
    Image.new(mode, (64, 48), 200).save(content, "JPEG", icc_profile=profile, exif=_turned())
    copy = Image.open(io.BytesIO(to_jpeg(ImageBytes("wide.jpg", content.getvalue()), 90, 32)))
    assert copy.info.get("icc_profile") == (profile if kept else None)
    assert copy.size == (24, 32)  # upright
    assert not copy.getexif()


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif
