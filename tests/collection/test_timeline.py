"""Items by time: months, pages and cursors that stay right while the collection changes."""

import io
from pathlib import Path

import pytest
from PIL import Image

import sightline
from collection.made_up import LONG_AGO, Instant, picture, put
from sightline.collection.group import browse_group, search_group
from sightline.errors import QueryError
from sightline.retrieval.options import SearchOptions

DATES = {"a.jpg": "2023:08:01 10:00:00", "b.jpg": "2023:08:20 10:00:00", "c.jpg": "2021:01:01 00:00:00"}


def dated(seed: int, taken: str) -> bytes:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = taken
    file = io.BytesIO()
    Image.open(io.BytesIO(picture(seed))).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for seed, (name, taken) in enumerate(DATES.items()):
        put(tmp_path / name, dated(seed, taken))
    put(tmp_path / "undated.png", picture(9), LONG_AGO)  # September 2020
    sightline.index(tmp_path, model=Instant())
    return tmp_path


def test_items_come_newest_first_by_date_taken_or_else_by_the_files_date(photos: Path) -> None:
    with sightline.open(photos) as collection:
        assert [item.files[0].path for item in collection.browse()] == ["b.jpg", "a.jpg", "c.jpg", "undated.png"]
        assert [item.files[0].path for item in collection.browse(k=2, start=1)] == ["a.jpg", "c.jpg"]
        assert [item.files[0].path for item in collection.browse("taken >= '2023'")] == ["b.jpg", "a.jpg"]
        months = [(month.name, month.items) for month in collection.timeline().months()]
        assert months == [("2023-08", 2), ("2021-01", 1), ("2020-09", 1)]


def test_of_several_copies_the_one_that_passes_the_filter_comes_first(photos: Path) -> None:
    for name in ("odd/copy.jpg", "z/copy.jpg"):
        put(photos / name, (photos / "b.jpg").read_bytes())
    sightline.index(photos, model=Instant())
    with sightline.open(photos, model=Instant()) as collection:
        for where, path in (("folder = 'odd'", "odd/copy.jpg"), ("folder = 'z'", "z/copy.jpg"), ("id > 0", "b.jpg")):
            item = next(item for item in collection.browse(where) if len(item.files) == 3)
            assert item.files[0].path == path
            assert {file.path for file in item.files} == {"b.jpg", "odd/copy.jpg", "z/copy.jpg"}
        found = search_group([collection], SearchOptions("a dog", where="folder = 'z'")).flat()
        assert [hit.path for hit in found] == [
            item.files[0].path for item in browse_group([collection], "folder = 'z'")
        ]


def test_a_cursor_stays_right_when_items_come_and_go(photos: Path) -> None:
    with sightline.open(photos) as collection:
        before = collection.timeline()
        behind_a = before.cursor(1)
        assert [before.after(before.cursor(place)) for place in range(4)] == [1, 2, 3, 4]
    put(photos / "newer.jpg", dated(20, "2024:01:01 00:00:00"))
    (photos / "a.jpg").unlink()
    sightline.index(photos, model=Instant())
    with sightline.open(photos) as collection:
        after = collection.timeline()
        items = collection.items(after.ids.tolist())
        assert items[int(after.ids[after.after(behind_a)])].files[0].path == "c.jpg"
        with pytest.raises(QueryError, match="no such cursor"):
            after.after("yesterday")


def test_the_timeline_is_renewed_with_the_collection(photos: Path) -> None:
    with sightline.open(photos) as collection:
        assert len(collection.timeline()) == 4
        put(photos / "new.png", picture(30))
        sightline.index(photos, model=Instant())
        collection.refresh()
        assert len(collection.timeline()) == 5
