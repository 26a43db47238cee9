"""RAW photos: the camera's preview, upright; the photo itself where there is none; a clear reason where neither is."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from media.raw_files import SIZE, cr2, dng, jpeg, nef
from sightline.collection.catalog.exif import place, taken
from sightline.errors import MediaError, MissingDecoderError
from sightline.media import ImageBytes, open_image
from sightline.media.camera import camera_facts
from sightline.media.file_types import RAW, detect_type
from sightline.media.open import MAX_PIXELS, check_image, read_exif

pytest.importorskip("rawpy", reason="the extra raw is not installed")


def opened(data: bytes) -> Image.Image:
    return open_image(ImageBytes("photo", data))


def preview(seed: int) -> Image.Image:
    return Image.open(io.BytesIO(jpeg(seed)))


@pytest.mark.parametrize(("data", "seed", "turned"), [(dng(1), 1, 0), (nef(2), 2, 0), (cr2(3), 3, 270)])
def test_the_preview_is_shown_upright(data: bytes, seed: int, turned: int) -> None:
    assert detect_type(data) is RAW
    wanted = preview(seed).rotate(turned, expand=True)
    assert opened(data).size == wanted.size
    assert np.array_equal(np.asarray(opened(data)), np.asarray(wanted.convert("RGB")))
    assert check_image(ImageBytes("photo", data)).size == SIZE


@pytest.mark.parametrize(
    ("data", "time", "camera"),
    [
        (dng(), "2023-08-01T10:00:00+02:00", "Made Up One"),
        (nef(), "2022-05-06T07:08:09+02:00", "NIKON CORPORATION NIKON D70"),
        (cr2(), "2021-01-02T03:04:05+02:00", "Canon EOS 5D Mark II"),
    ],
)
def test_time_and_camera_are_those_of_the_photo(data: bytes, time: str, camera: str) -> None:
    exif = read_exif(ImageBytes("photo", data))
    assert taken(exif) == time
    facts = camera_facts(exif)
    assert facts["exposure"] == "1/250 s"
    assert facts["camera"] == camera


def test_the_place_is_known() -> None:
    found = place(read_exif(ImageBytes("photo", dng())))
    assert found is not None
    assert (found.latitude, found.longitude) == (52.5, 13.25)


@pytest.mark.parametrize("data", [dng(None), dng(1, size=(48, 32), sensor=(1200, 800))], ids=["none", "tiny"])
def test_without_a_useful_preview_the_photo_is_developed_at_half_size(data: bytes) -> None:
    found = opened(data)
    assert found.size == ((48, 32) if len(data) < 100_000 else (600, 400))
    grey = np.asarray(found.convert("L"), dtype=np.float32)
    assert grey[:, : found.width // 3].mean() > grey[:, -found.width // 3 :].mean() + 60


def test_a_photo_without_a_preview_is_turned_too() -> None:
    assert opened(dng(None, orientation=6)).size == (32, 48)


def test_other_tiff_files_are_no_raw_photos() -> None:
    file = io.BytesIO()
    preview(4).save(file, "TIFF")
    assert detect_type(file.getvalue()) is not RAW
    for length in range(8, 300, 7):
        detect_type(dng()[:length])  # cut short anywhere: no error


@pytest.mark.parametrize("data", [dng(None)[:2000], b"\0\0\0\x18ftypcrx \0\0\0\x01crx isom" + bytes(64)])
def test_broken_ones_say_what_they_are(data: bytes) -> None:
    with pytest.raises(MediaError, match="RAW photo that is damaged or of an unsupported type"):
        opened(data)


def test_a_sensor_of_too_many_pixels_is_refused() -> None:
    with pytest.raises(MediaError, match="too many pixels: 96 x 64"):
        open_image(ImageBytes("photo", dng(None)), max_pixels=6_000)
    assert MAX_PIXELS > 6_000


def test_without_the_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rawpy", None)
    with pytest.raises(MissingDecoderError, match=r"needs another package: .*pip install 'sightline-search\[raw\]'"):
        opened(dng())
