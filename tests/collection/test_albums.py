"""Albums stay with their pictures, whatever happens to files and catalogs."""

import threading
from pathlib import Path
from typing import Any

import pytest

import sightline
from collection.made_up import Instant, picture, put
from sightline.collection.albums import Albums
from sightline.collection.status import status
from sightline.errors import CollectionError, QueryError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(4):
        put(tmp_path / f"{number}.png", picture(number))
    sightline.index(tmp_path, model=Instant())
    with sightline.open(tmp_path) as collection:
        ids = {item.files[0].path: item.id for item in collection.browse()}
        collection.add_to_album("Trip", [ids["1.png"], ids["2.png"]])
    return tmp_path


def names(photos: Path, where: str) -> set[str]:
    with sightline.open(photos) as collection:
        return {item.files[0].path for item in collection.browse(where)}


def test_an_album_follows_a_file_that_is_moved(photos: Path) -> None:
    (photos / "1.png").rename(photos / "renamed.png")
    sightline.index(photos, model=Instant())
    assert names(photos, "album = 'Trip'") == {"renamed.png", "2.png"}
    assert names(photos, "album in ('Trip', 'Other') and name like 'r%'") == {"renamed.png"}


def test_a_missing_file_does_not_count_and_is_in_the_album_again_once_it_is_back(photos: Path) -> None:
    content = (photos / "1.png").read_bytes()
    (photos / "1.png").unlink()
    sightline.index(photos, model=Instant())
    with sightline.open(photos) as collection:
        assert collection.album_sizes() == {"Trip": 1}
    assert status(photos).albums == {"Trip": 1}
    put(photos / "1.png", content)
    sightline.index(photos, model=Instant())
    with sightline.open(photos) as collection:
        assert collection.album_sizes() == {"Trip": 2}


def test_a_changed_file_stays_in_its_albums(photos: Path) -> None:
    put(photos / "1.png", picture(50))
    put(photos / "3.png", picture(51))
    sightline.index(photos, model=Instant())
    assert names(photos, "album = 'Trip'") == {"1.png", "2.png"}
    with sightline.open(photos) as collection:
        assert collection.album_sizes() == {"Trip": 2}


def test_a_damaged_file_of_albums_does_not_stop_indexing(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / ".sightline/albums/albums.json").write_text("{")
    put(photos / "1.png", picture(50))
    assert sightline.index(photos, model=Instant()).changed == 1
    assert "changed files were not kept in their albums" in caplog.text


def test_an_album_can_be_deleted_even_if_all_its_files_are_missing(photos: Path) -> None:
    for name in ("1.png", "2.png"):
        (photos / name).unlink()
    sightline.index(photos, model=Instant())
    with sightline.open(photos) as collection:
        assert collection.album_sizes() == {"Trip": 0}
        collection.delete_album("Trip")
        assert collection.album_sizes() == {}
        with pytest.raises(CollectionError, match="there is no album 'Trip'"):
            collection.delete_album("Trip")


def test_albums_survive_a_catalog_that_is_made_again(photos: Path) -> None:
    for file in photos.glob(".sightline/catalog*"):
        file.unlink()
    sightline.index(photos, model=Instant())
    assert names(photos, "album like 't%'") == {"1.png", "2.png"}


def test_several_threads_lose_nothing(tmp_path: Path) -> None:
    def add(number: int) -> None:
        for part in range(5):
            Albums(tmp_path).add("All", [bytes([number, part])])

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Albums(tmp_path).all()["All"]) == 30


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 101])
def test_a_name_that_cannot_be_shown_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(QueryError, match="name of an album"):
        Albums(tmp_path).add(name, [b"1"])


@pytest.mark.parametrize("text", ["{", "[]", '{"albums": {"a": ["zz"]}}', '{"albums": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "albums").mkdir()
    (tmp_path / "albums" / "albums.json").write_text(text)
    with pytest.raises(CollectionError, match=r"albums\.json: cannot be read"):
        Albums(tmp_path).all()


def test_an_album_that_lost_a_bit_is_noticed_and_the_version_before_can_be_restored(tmp_path: Path) -> None:
    Albums(tmp_path).add("Trip", [b"\x11" * 4])
    Albums(tmp_path).add("Trip", [b"\x22" * 4])
    file = tmp_path / "albums" / "albums.json"
    file.write_text(file.read_text().replace("22222222", "22222223"))
    with pytest.raises(CollectionError, match="checksum is wrong") as raised:
        Albums(tmp_path).add("Trip", [b"\x33" * 4])
    before = tmp_path / "albums" / "before.json"
    assert str(before) in raised.value.way_out
    before.replace(file)
    assert Albums(tmp_path).all() == {"Trip": {b"\x11" * 4}}


def test_albums_of_a_newer_version_are_neither_read_nor_replaced(tmp_path: Path) -> None:
    file = tmp_path / "albums" / "albums.json"
    file.parent.mkdir()
    file.write_text('{"format": 2, "albums": {}, "more": 1}')
    with pytest.raises(CollectionError, match="newer version"):
        Albums(tmp_path).add("Trip", [b"1"])
    assert "more" in file.read_text()


def test_albums_without_a_checksum_are_read(tmp_path: Path) -> None:
    (tmp_path / "albums").mkdir()
    (tmp_path / "albums" / "albums.json").write_text('{"format": 1, "albums": {"Trip": ["0102"]}}')
    assert Albums(tmp_path).all() == {"Trip": {b"\1\2"}}


def test_like_ignores_the_case_of_all_letters_in_the_name_of_an_album(photos: Path) -> None:
    with sightline.open(photos) as collection:
        collection.add_to_album("Ärger", [collection.browse("name = '3.png'")[0].id])
    assert names(photos, "album like 'äR%'") == {"3.png"}


def test_an_album_is_not_compared_with_a_column(photos: Path) -> None:
    with pytest.raises(QueryError, match="an album must be compared with text"):
        names(photos, "album = name")


def test_an_album_without_items_is_not_created(photos: Path) -> None:
    with sightline.open(photos) as collection:
        assert collection.add_to_album("Nothing", [999]) == [999]
        assert set(collection.albums.all()) == {"Trip"}


def test_ids_that_no_item_has_are_returned_by_changes_to_an_album(photos: Path) -> None:
    with sightline.open(photos) as collection:
        id = collection.browse("name = '3.png'")[0].id
        assert collection.add_to_album("Trip", [999, id, 998, 999]) == [999, 998]
        assert names(photos, "album = 'Trip'") == {"1.png", "2.png", "3.png"}
        assert collection.remove_from_album("Trip", [999, id]) == [999]
        assert collection.remove_from_album("Trip", []) == []
    assert names(photos, "album = 'Trip'") == {"1.png", "2.png"}


@pytest.mark.parametrize("ids", ["12", b"12", ["1"], [1.0], [None], [True], 1])
def test_only_whole_numbers_are_ids(photos: Path, ids: Any) -> None:
    with sightline.open(photos) as collection:
        before = collection.albums.all()
        for change in (collection.add_to_album, collection.remove_from_album):
            with pytest.raises(QueryError, match=r"^ids must be several whole numbers, not"):
                change("Trip", ids)
        with pytest.raises(QueryError, match=r"^ids must be several whole numbers, not"):
            collection.items(ids)
        assert collection.albums.all() == before


def test_ids_may_be_numpy_integers(photos: Path) -> None:
    with sightline.open(photos) as collection:
        ids = collection.timeline().ids
        assert collection.add_to_album("All", ids) == []
        assert len(collection.items(ids)) == 4
        assert collection.item(ids[0]) == collection.item(int(ids[0]))
        assert collection.text_in(ids[0]) == []


@pytest.mark.parametrize("id", ["1", None, 2.0])
def test_an_item_is_found_only_by_a_whole_number(photos: Path, id: Any) -> None:
    with sightline.open(photos) as collection:
        for find in (collection.item, collection.text_in):
            with pytest.raises(QueryError, match=r"^id must be a whole number, not"):
                find(id)


def test_an_id_that_is_too_large_for_any_item_is_refused(photos: Path) -> None:
    with sightline.open(photos) as collection, pytest.raises(QueryError, match=r"id must be less than 2\*\*63"):
        collection.item(2**64)
