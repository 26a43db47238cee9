"""When and where a picture was taken is read from every kind of file, and invalid metadata is ignored."""

from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image

from collection.made_up import Instant, picture, put
from sightline.collection import Collection, Place, index
from sightline.collection.catalog.exif import place, taken


def noted(original: Any = None, zone: Any = None, gps: dict[int, Any] | None = None) -> Image.Exif:
    exif = Image.Exif()
    details = exif.get_ifd(ExifTags.IFD.Exif)
    if original is not None:
        details[ExifTags.Base.DateTimeOriginal] = original
    if zone is not None:
        details[ExifTags.Base.OffsetTimeOriginal] = zone
    exif.get_ifd(ExifTags.IFD.GPSInfo).update(gps or {})
    return exif


def gps(latitude: Any, north: Any, longitude: Any, east: Any) -> dict[int, Any]:
    return {1: north, 2: latitude, 3: east, 4: longitude}


BERN = gps((46.0, 57.0, 3.6), "N", (7.0, 26.0, 24.0), "E")


@pytest.mark.parametrize(
    ("original", "zone", "expected"),
    [
        ("2019:07:04 12:34:56", None, "2019-07-04T12:34:56"),
        ("2019:07:04 12:34:56\0", "+02:00", "2019-07-04T12:34:56+02:00"),
        ("2019:07:04 12:34:56", "local", "2019-07-04T12:34:56"),
        ("0000:00:00 00:00:00", None, None),
        ("    :  :     :  :  ", None, None),
        ("2019:13:40 12:34:56", None, None),
        (17, None, None),
        (None, "+02:00", None),
    ],
)
def test_the_time_is_read_in_iso_form(original: Any, zone: Any, expected: str | None) -> None:
    assert taken(noted(original, zone)) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (BERN, Place(46.951, 7.44)),
        (gps((33.0, 51.0, 36.0), "S", (151.0, 12.0, 36.0), "E"), Place(-33.86, 151.21)),
        (gps((40.0, 42.0, 36.0), "n\0", (74.0, 0.0, 36.0), "w"), Place(40.71, -74.01)),
        (gps((95.0, 0.0, 0.0), "N", (7.0, 0.0, 0.0), "E"), None),
        (gps((float("nan"),) * 3, "N", (7.0, 0.0, 0.0), "E"), None),
        (gps((46.0, 57.0), "N", (7.0, 26.0, 24.0), "E"), None),
        (gps("46", "N", (7.0, 26.0, 24.0), "E"), None),
        ({}, None),
    ],
)
def test_the_place_is_read_in_degrees(where: dict[int, Any], expected: Place | None) -> None:
    found = place(noted(gps=where))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.latitude, found.longitude) == (
            pytest.approx(expected.latitude, abs=1e-6),
            pytest.approx(expected.longitude, abs=1e-6),
        )


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
def test_time_place_and_upright_size_are_kept_with_the_item(tmp_path: Path, model: Instant, file_format: str) -> None:
    exif = noted("2019:07:04 12:34:56", gps=BERN)
    exif[ExifTags.Base.Orientation] = 6
    put(tmp_path / f"a.{file_format.lower()}", picture(1, format=file_format, exif=exif))
    index(tmp_path, model=model)
    with Collection.open(tmp_path / ".sightline") as collection:
        (item,) = collection.items(collection.catalog.ids()).values()
    assert item.taken == "2019-07-04T12:34:56"
    assert item.place is not None
    assert item.place.latitude == pytest.approx(46.951, abs=1e-6)
    assert (item.width, item.height) == (9, 12)
