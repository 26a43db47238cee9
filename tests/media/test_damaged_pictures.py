"""Damage is a MediaError that names the file and says what happened, quickly, whatever the bytes."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL import ImageFile as PillowFile

from media.sample_pictures import encoded, photo, quarters, source
from sightline.errors import MediaError
from sightline.media import ImageBytes, ImageFile, open_image
from sightline.media.open import check_image

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

PHOTO = photo(56, 40)
WHOLE = {
    "jpeg": encoded(PHOTO, "JPEG", quality=90),
    "jpeg progressive": encoded(PHOTO, "JPEG", quality=90, progressive=True),
    "jpeg gray": encoded(PHOTO.convert("L"), "JPEG"),
    "jpeg with restarts": encoded(PHOTO, "JPEG", restart_marker_rows=1),
    "png": encoded(PHOTO, "PNG"),
    "png palette": encoded(PHOTO.quantize(32), "PNG"),
    "webp": encoded(PHOTO, "WEBP"),
    "webp lossless": encoded(PHOTO, "WEBP", lossless=True),
    "gif": encoded(PHOTO, "GIF"),
    "gif animated": encoded(PHOTO, "GIF", save_all=True, append_images=[PHOTO.rotate(180)]),
    "bmp": encoded(PHOTO, "BMP"),
    "tiff": encoded(PHOTO, "TIFF"),
    "tiff lzw": encoded(PHOTO, "TIFF", compression="tiff_lzw"),
    "avif": encoded(PHOTO, "AVIF"),
    "jpeg 2000": encoded(PHOTO, "JPEG2000", quality_mode="rates", quality_layers=[20]),
}
JPEGS = [name for name in WHOLE if name.startswith("jpeg") and name != "jpeg 2000"]
DISGUISES = {
    b"<!DOCTYPE html><html><body>404 Not Found</body></html>": "an HTML page",
    b"\n\n  <html><head></head></html>": "an HTML page",
    b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>': "an SVG drawing",
    b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>': "an XML document",
    b'{"error": "not found"}': "JSON",
    b"This is not a picture at all.\n" * 40: "plain text",
    "这不是图片。".encode() * 60: "plain text",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n": "a Git LFS pointer",
    b"%PDF-1.7 ...": "a PDF document",
    b"PK\x03\x04 and so on": "a ZIP archive",
    b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41": "an MP4 or QuickTime video",
    b"RIFF\x24\0\0\0WAVEfmt ": "a RIFF sound or video file",
    b"8BPS\0\x01" + bytes(20): "a Photoshop document",
    b"\0\0\0\x0cJXL \r\n\x87\n": "a JPEG XL picture",
    bytes(4096): "zero bytes",
    b"%!PS-Adobe-3.0 EPSF-3.0\n": "a PostScript document",
    bytes(range(128, 256)) * 4: "no known kind of file",
}


def cuts(data: bytes) -> list[int]:
    """Every byte of both ends, and steps through the middle."""
    edge = min(len(data) // 2, 60)
    return sorted({*range(1, edge), *range(edge, len(data) - edge, 37), *range(len(data) - edge, len(data))})


@pytest.mark.parametrize("name", WHOLE)
def test_a_picture_cut_short_raises_or_has_lost_nothing(name: str) -> None:
    whole = np.asarray(open_image(source(WHOLE[name])))
    for length in cuts(WHOLE[name]):
        start = time.perf_counter()
        try:
            pixels = np.asarray(open_image(source(WHOLE[name][:length])))
        except MediaError:
            pixels = whole
        assert np.array_equal(pixels, whole), f"cut to {length} of {len(WHOLE[name])} bytes, and other pixels"
        assert time.perf_counter() - start < 5


@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize("at_least", [None, 8])
def test_a_jpeg_cut_by_even_its_last_byte_raises(name: str, at_least: int | None) -> None:
    for lost in (1, 2, 3, 5, 10, 50, 200):
        with pytest.raises(MediaError, match="truncated"):
            open_image(source(WHOLE[name][:-lost]), at_least=at_least)


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_whose_end_a_broken_download_left_zero_raises(name: str) -> None:
    for lost in (1, 2, 3, 50, 300):
        with pytest.raises(MediaError):
            open_image(source(WHOLE[name][:-lost] + bytes(lost)))


def test_the_end_of_a_thumbnail_does_not_count_as_the_end_of_the_picture() -> None:
    thumbnail = b"Exif\0\0" + encoded(PHOTO.resize((8, 6)), "JPEG")
    data = encoded(PHOTO, "JPEG", exif=thumbnail)
    assert open_image(source(data)).size == PHOTO.size
    with pytest.raises(MediaError, match="truncated"):
        open_image(source(data[:-60] + bytes(60)))


def test_bytes_after_the_end_of_a_jpeg_do_no_harm() -> None:
    assert open_image(source(WHOLE["jpeg"] + b"a motion picture")).size == PHOTO.size


def test_cut_pictures_are_refused_without_touching_pillows_settings() -> None:
    with pytest.raises(MediaError, match="truncated"):
        open_image(source(WHOLE["jpeg"][:-20]))
    assert PillowFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "gif", "bmp", "avif"])
def test_a_picture_cut_in_half_is_called_cut_short_and_how_to_mend_it(name: str) -> None:
    data = WHOLE[name]
    with pytest.raises(MediaError, match="truncated after") as caught:
        open_image(source(data[: len(data) // 2], "holiday.jpg"))
    assert str(caught.value).startswith("holiday.jpg: ")
    assert "again" in caught.value.way_out


def test_a_heic_cut_short_raises() -> None:
    pytest.importorskip(
        "pillow_heif", reason="pillow-heif, the optional extra, is not installed"
    ).register_heif_opener()
    data = encoded(PHOTO, "HEIF")
    for length in cuts(data):
        with pytest.raises(MediaError):
            open_image(source(data[:length]))


@pytest.mark.parametrize("look", [open_image, check_image])
def test_an_empty_file_says_so(tmp_path: Path, look: Callable[[ImageFile], object]) -> None:
    path = tmp_path / "empty.jpg"
    path.touch()
    with pytest.raises(MediaError, match="is empty"):
        look(ImageFile(path))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no such file") as caught:
        open_image(ImageFile(tmp_path / "gone.jpg"))
    assert caught.value.name == str(tmp_path / "gone.jpg")
    assert caught.value.way_out


@pytest.mark.parametrize(("data", "looks_like"), DISGUISES.items(), ids=lambda value: str(value)[:24])
def test_what_is_no_picture_is_told_for_what_it_looks_like(data: bytes, looks_like: str) -> None:
    with pytest.raises(MediaError, match=looks_like):
        open_image(ImageBytes("holiday.jpg", data))


@pytest.mark.parametrize(
    "error", [MemoryError(), OverflowError("x"), RecursionError("x"), KeyError("x"), AssertionError()]
)
def test_whatever_a_decoder_raises_is_a_media_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Image.Image) -> None:
        raise error

    monkeypatch.setattr(PillowFile.ImageFile, "load", load)
    with pytest.raises(MediaError, match="a BMP picture") as caught:
        open_image(source(WHOLE["bmp"]))
    assert caught.value.__cause__ is error


@settings(max_examples=300, deadline=10_000)
@given(data=st.data())
def test_flipped_bytes_give_a_picture_or_a_media_error(data: st.DataObject) -> None:
    damaged = bytearray(WHOLE[data.draw(st.sampled_from(list(WHOLE)))])
    # Headers are where decoders trust what they read, so half of the damage goes there.
    places = st.integers(0, len(damaged) - 1) | st.integers(0, min(200, len(damaged) - 1))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=8)):
        damaged[place] = value
    try:
        image = open_image(
            source(bytes(damaged)), at_least=data.draw(st.sampled_from([None, 10])), max_pixels=1_000_000
        )
    except MediaError:
        return
    assert image.mode == "RGB"
    assert image.size[0] * image.size[1] <= 1_000_000


@settings(max_examples=150, deadline=10_000)
@given(start=st.sampled_from([data[:24] for data in WHOLE.values()] + [b""]), rest=st.binary(max_size=400))
def test_arbitrary_bytes_after_a_known_beginning_never_raise_anything_else(start: bytes, rest: bytes) -> None:
    with contextlib.suppress(MediaError):
        open_image(source(start + rest), max_pixels=1_000_000)


def test_the_sample_pictures_are_whole() -> None:
    for name, data in WHOLE.items():
        assert open_image(source(data, name)).size == PHOTO.size
    assert open_image(source(encoded(quarters(), "PNG"))).size == quarters().size
