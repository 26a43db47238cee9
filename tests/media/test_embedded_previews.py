"""Large photos are read by the preview that the camera stored in them, if a model allows it."""

import io
import struct
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sightline.errors import MediaError
from sightline.media import ImageBytes, Preprocess, to_pixels
from sightline.media.embedded import smallest_preview
from sightline.media.memory import decoding
from sightline.media.pixels import open_for_model
from tests.media.sample_pictures import BLUE, GREEN, centres, encoded, quarters, source

QUICK = Preprocess(32, resize="squash", mean=(0, 0, 0), std=(1, 1, 1), decode_at_least=32, previews=True)
VGA, FULL_HD, UNDEFINED, PANORAMA = 0x010001, 0x010002, 0, 0x020001
_PHOTO = quarters(2400, 1800)
_PLAIN = encoded(_PHOTO, "JPEG")


def one_colour(colour: tuple[int, int, int], width: int, height: int) -> bytes:
    return encoded(Image.new("RGB", (width, height), colour), "JPEG")


def exif(thumbnail: bytes, *, orientation: int = 1, start: int = 56, length: int | None = None) -> bytes:
    """Return EXIF data with a thumbnail, by hand: Pillow reads these, but does not write them."""
    first = struct.pack("<HHHLHHL", 1, 0x0112, 3, 1, orientation, 0, 26)
    size = len(thumbnail) if length is None else length
    second = struct.pack("<HHHLLHHLLL", 2, 0x0201, 4, 1, start, 0x0202, 4, 1, size, 0)
    return b"Exif\0\0II*\0\x08\0\0\0" + first + second + thumbnail


def with_thumbnail(thumbnail: bytes, orientation: int = 1) -> bytes:
    return encoded(_PHOTO, "JPEG", exif=exif(thumbnail, orientation=orientation))


def with_second_image(image: Image.Image, kind: int, photo: Image.Image = _PHOTO, exif: bytes = b"") -> bytes:
    """Return a multi-picture file; Pillow writes all images as of kind 0."""
    data = encoded(photo, "MPO", save_all=True, append_images=[image], exif=exif)
    entries = data.rindex(struct.pack("<L", 0x030000), 0, len(exif) + 200)
    assert data[entries + 16 : entries + 20] == bytes(4)
    return data[: entries + 16] + struct.pack("<L", kind) + data[entries + 20 :]


def is_of_one_colour(image: ImageBytes, colour: tuple[int, int, int], preprocess: Preprocess = QUICK) -> bool:
    seen = centres(open_for_model(image, preprocess).image)
    return all(abs(value - wanted) < 8 for pixel in seen for value, wanted in zip(pixel, colour, strict=True))


def test_a_large_photo_is_read_by_its_exif_thumbnail() -> None:
    image = source(with_thumbnail(one_colour(GREEN, 160, 120)))
    assert is_of_one_colour(image, GREEN)
    assert not is_of_one_colour(image, GREEN, replace(QUICK, previews=None))
    assert to_pixels(image, QUICK).shape == (3, 32, 32)


@pytest.mark.parametrize("kind", [VGA, FULL_HD])
def test_a_large_photo_is_read_by_the_large_thumbnail_of_a_multi_picture_file(kind: int) -> None:
    image = source(with_second_image(Image.new("RGB", (640, 480), BLUE), kind))
    assert is_of_one_colour(image, BLUE)
    assert open_for_model(image, QUICK).image.size == (80, 60)  # decoded at an eighth of its size


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_preview_keeps_the_size_the_details_and_the_orientation_of_the_photo(orientation: int) -> None:
    image = source(with_thumbnail(encoded(quarters(160, 120), "JPEG"), orientation=orientation))
    small, whole = (open_for_model(image, replace(QUICK, previews=given)) for given in (True, None))
    assert small.sides == whole.sides == ((2400, 1800) if orientation < 5 else (1800, 2400))
    assert sorted(small.image.size) == [60, 80]
    assert dict(small.exif) == dict(whole.exif)
    for seen, expected in zip(centres(small.image), centres(whole.image), strict=True):
        assert seen == pytest.approx(expected, abs=8)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_thumbnail(one_colour(GREEN, 40, 30)), id="too small"),
        pytest.param(with_thumbnail(one_colour(GREEN, 160, 160)), id="of another shape"),
        pytest.param(with_second_image(Image.new("RGB", (2400, 1800), BLUE), FULL_HD), id="as large as the photo"),
        pytest.param(with_thumbnail(one_colour(GREEN, 120, 160)), id="turned"),
        pytest.param(with_thumbnail(one_colour(GREEN, 160, 120)[:-40]), id="cut off"),
        pytest.param(with_thumbnail(b"\xff\xd8\xff nothing"), id="damaged"),
        pytest.param(with_second_image(Image.new("RGB", (640, 480), BLUE), UNDEFINED), id="undefined"),
        pytest.param(with_second_image(Image.new("RGB", (640, 480), BLUE), PANORAMA), id="panorama"),
        pytest.param(_PLAIN, id="no preview"),
    ],
)
def test_a_photo_whose_preview_is_of_no_use_is_decoded_itself(data: bytes) -> None:
    assert (to_pixels(source(data), QUICK) == to_pixels(source(data), replace(QUICK, previews=None))).all()


def test_the_smallest_preview_with_enough_pixels_is_read() -> None:
    thumbnail = exif(one_colour(GREEN, 160, 120))
    both = source(with_second_image(Image.new("RGB", (640, 480), BLUE), VGA, exif=thumbnail))
    assert is_of_one_colour(both, GREEN)
    assert is_of_one_colour(both, BLUE, replace(QUICK, decode_at_least=130))


def test_a_broken_preview_holds_no_memory_while_the_photo_waits_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(decoding, "reserve", reserved.append)
    image = source(with_thumbnail(one_colour(GREEN, 160, 120)[:-40]))
    assert not is_of_one_colour(image, GREEN)
    assert len(reserved) == 1
    assert is_of_one_colour(source(with_thumbnail(one_colour(GREEN, 160, 120))), GREEN)
    assert len(reserved) == 1


def test_a_file_that_lists_its_images_many_times_takes_no_more_memory() -> None:
    data = with_second_image(Image.new("RGB", (640, 480), BLUE), VGA) + bytes(10_000_000)
    photo = Image.open(io.BytesIO(data))
    entries = photo.mpinfo[0xB002]  # type: ignore[attr-defined]
    large = {**entries[1], "Size": len(data), "DataOffset": 0}
    photo.mpinfo[0xB002] = [entries[0], *[large] * 1000]  # type: ignore[attr-defined]
    tracemalloc.start()
    assert smallest_preview(photo, data, 32) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_a_small_photo_is_decoded_itself() -> None:
    small = Image.new("RGB", (1600, 1200), BLUE)
    image = source(with_second_image(Image.new("RGB", (640, 480), GREEN), VGA, small))
    assert is_of_one_colour(image, BLUE)


@given(start=st.integers(0, 2**32 - 1), length=st.integers(0, 2**32 - 1))
def test_a_photo_with_a_wrong_place_of_its_thumbnail_is_read(start: int, length: int) -> None:
    wrong = exif(one_colour(GREEN, 160, 120), start=start, length=length)
    data = encoded(_PHOTO, "JPEG", exif=wrong)
    assert open_for_model(source(data), QUICK).sides == (2400, 1800)


def test_a_photo_that_is_cut_off_is_refused_although_its_preview_is_whole() -> None:
    with pytest.raises(MediaError, match="is truncated"):
        to_pixels(source(with_thumbnail(one_colour(GREEN, 160, 120))[:-500]), QUICK)


def test_the_bundled_fast_graph_reads_previews_and_the_full_one_reads_photos() -> None:
    from sightline.bundle import Bundle
    from sightline.registry.loader import locate

    full = Bundle.open(locate("default"))
    fast = full.fast_variant()
    assert fast is not None
    assert isinstance(fast.preprocess, Preprocess)
    assert fast.preprocess.previews
    assert isinstance(full.preprocess, Preprocess)
    assert not full.preprocess.previews
