"""What comes in opens: every format, every orientation, large JPEGs quickly; and no picture costs a warning."""

import io
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from media.sample_pictures import QUARTERS, centres, encoded, photo, png_chunk, png_header, quarters, source
from sightline.errors import MediaError
from sightline.media import ImageFile, open_image
from sightline.packages import install_extra

FORMATS = [
    ("JPEG", {"quality": 95}),
    ("JPEG", {"quality": 95, "progressive": True}),
    ("PNG", {}),
    ("WEBP", {"quality": 95}),
    ("WEBP", {"lossless": True}),
    ("GIF", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("TIFF", {"compression": "jpeg", "quality": 95}),
    ("BMP", {}),
    ("AVIF", {"quality": 95}),
    ("JPEG2000", {}),
    ("PPM", {}),
]
TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def assert_quarters(image: Image.Image, *, within: int = 12) -> None:
    assert image.mode == "RGB"
    np.testing.assert_allclose(centres(image), QUARTERS, atol=within)


def held(orientation: int) -> tuple[Image.Image, Image.Exif]:
    """The quarters as a camera held this way stores them, and the EXIF data that says so."""
    turn = TURNS[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    return (quarters() if turn is None else quarters().transpose(turn)), exif


@pytest.mark.parametrize(("file_format", "options"), FORMATS)
def test_every_format_opens_with_its_colours(file_format: str, options: dict[str, object]) -> None:
    image = open_image(source(encoded(quarters(), file_format, **options)))
    assert image.size == (64, 48)
    assert_quarters(image)


def test_heic_opens_with_its_colours() -> None:
    pillow_heif = pytest.importorskip("pillow_heif", reason="pillow-heif, the optional extra, is not installed")
    pillow_heif.register_heif_opener()
    assert_quarters(open_image(source(encoded(quarters(), "HEIF", quality=95))))


def test_heic_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(MediaError, match="HEIC") as caught:
        open_image(source(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100), "IMG_1.HEIC"))
    assert caught.value.way_out == install_extra("heic")
    assert caught.value.name == "IMG_1.HEIC"


def test_a_format_that_this_pillow_lacks_says_what_to_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.AvifImagePlugin", None)
    with pytest.raises(MediaError, match="AVIF") as caught:
        open_image(source(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf"))
    assert "pillow" in caught.value.way_out


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "really a jpeg.png"
    path.write_bytes(encoded(quarters(), "JPEG", quality=95))
    assert_quarters(open_image(ImageFile(path)))


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG"])
def test_an_animation_opens_as_its_first_frame(file_format: str) -> None:
    frames = [quarters().rotate(180), quarters().rotate(180)]
    data = encoded(quarters(), file_format, save_all=True, append_images=frames, duration=50)
    assert_quarters(open_image(source(data)), within=25)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("file_format", "options"),
    [("JPEG", {"quality": 95}), ("PNG", {}), ("WEBP", {"quality": 95}), ("TIFF", {}), ("AVIF", {})],
)
def test_every_orientation_comes_out_upright(orientation: int, file_format: str, options: dict[str, object]) -> None:
    sensor, exif = held(orientation)
    image = open_image(source(encoded(sensor, file_format, exif=exif, **options)))
    assert image.size == (64, 48)
    assert_quarters(image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_upright_picture_does_not_say_that_it_should_be_turned(orientation: int) -> None:
    sensor, exif = held(orientation)
    assert dict(open_image(source(encoded(sensor, "JPEG", exif=exif))).getexif()) == {}


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_an_orientation_that_does_not_exist_leaves_the_picture_as_it_is(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert_quarters(open_image(source(encoded(quarters(), "JPEG", quality=95, exif=exif))))


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\xff" + bytes(30)]
)
def test_broken_metadata_does_not_cost_the_picture(exif: bytes) -> None:
    assert_quarters(open_image(source(encoded(quarters(), "JPEG", quality=95, exif=exif))))


@pytest.mark.parametrize("sides", [(1600, 1200), (1601, 1203), (700, 2100), (333, 1000)])
@pytest.mark.parametrize("at_least", [50, 150, 333, 5000])
def test_scaled_decoding_never_goes_below_what_was_asked_for(sides: tuple[int, int], at_least: int) -> None:
    image = open_image(source(encoded(quarters(*sides), "JPEG")), at_least=at_least)
    assert min(image.size) >= min(at_least, min(sides))
    assert image.size[0] / image.size[1] == pytest.approx(sides[0] / sides[1], rel=0.02)


def test_scaled_decoding_shows_the_same_picture_as_full_decoding() -> None:
    data = encoded(photo(1600, 1200), "JPEG", quality=92)
    scaled, full = open_image(source(data), at_least=300), open_image(source(data))
    assert scaled.size == (400, 300)
    shrunk = full.resize(scaled.size, Image.Resampling.BOX)
    assert np.abs(np.asarray(scaled, dtype=int) - np.asarray(shrunk, dtype=int)).mean() < 1.5


def test_scaled_decoding_turns_upright_too() -> None:
    sensor, exif = held(6)
    image = open_image(source(encoded(sensor.resize((480, 640)), "JPEG", exif=exif, quality=95)), at_least=100)
    assert image.size == (160, 120)
    assert_quarters(image)


def test_a_useless_at_least_is_refused() -> None:
    with pytest.raises(ValueError, match="at_least=0"):
        open_image(source(encoded(quarters(), "JPEG")), at_least=0)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"])
def test_more_pixels_than_allowed_are_refused_and_just_as_many_are_not(file_format: str) -> None:
    data = encoded(quarters(), file_format)
    assert open_image(source(data), max_pixels=64 * 48).size == (64, 48)
    with pytest.raises(MediaError, match=r"64 x 48 pixels.*3,071 are allowed") as caught:
        open_image(source(data), max_pixels=64 * 48 - 1)
    assert "smaller" in caught.value.way_out


def test_a_bomb_is_refused_by_its_header() -> None:
    data = png_header(60_000, 60_000) + png_chunk(b"IDAT", bytes(100))
    with pytest.raises(MediaError, match="60000 x 60000"):
        open_image(source(data, "bomb.png"))


def test_a_bomb_hidden_in_the_first_frame_of_a_gif_is_refused() -> None:
    gif = b"GIF89a\x01\0\x01\0\0\0\0" + b"!\xfe\x02hi\0" + b",\0\0\0\0\xff\xff\xff\xff\0\x02" + bytes(8)
    with pytest.raises(MediaError, match="too many pixels"):
        open_image(source(gif))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"])
@pytest.mark.parametrize("action", ["always", "error"])
def test_pillows_own_limit_neither_warns_nor_refuses_below_the_callers(
    file_format: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(quarters(), file_format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter(action)
        assert open_image(source(data)).size == (64, 48)
    assert heard == []


def test_a_gif_whose_first_frame_is_larger_than_its_canvas_opens_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gif = encoded(quarters(), "GIF", comment=b"x" * 600)
    small_canvas = gif[:6] + b"\x01\0\x01\0" + gif[10:]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert_quarters(open_image(source(small_canvas)))
    assert heard == []


@pytest.mark.parametrize("file_format", ["TIFF", "WEBP"])
def test_where_pillow_refuses_for_its_own_limit_it_is_a_media_error(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(quarters(), file_format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(MediaError, match="too many pixels"):
        open_image(source(data))


def test_a_picture_that_makes_pillow_warn_opens_even_where_warnings_are_errors() -> None:
    upside_down = b"\x12\x01\x03\0\x01\0\0\0\x03\0\0\0"
    resolution_outside_the_file = b"\x1a\x01\x05\0\x01\0\0\0\xff\xff\0\0"
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0" + upside_down + resolution_outside_the_file
    data = encoded(quarters().transpose(Image.Transpose.ROTATE_180), "JPEG", quality=95, exif=exif)
    with pytest.warns(UserWarning, match="Truncated"):
        Image.open(io.BytesIO(data)).getexif()
    assert_quarters(open_image(source(data)))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_one_may_not_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "private.png"
    path.write_bytes(encoded(quarters(), "PNG"))
    path.chmod(0)
    with pytest.raises(MediaError, match="permission denied"):
        open_image(ImageFile(path))
