"""A manifest that is lost or damaged costs nothing: its copy is used, and indexing restores it."""

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from collection.made_up import Instant, picture, put
from sightline.collection import Collection, index
from sightline.collection.catalog.integrity import CHECKSUM_FILE
from sightline.collection.locate import find_collection
from sightline.collection.manifest import COPY_FILE, MANIFEST_FILE, has_manifest, is_intact, read_manifest
from sightline.errors import CollectionError
from sightline.files import write_atomic


@pytest.fixture
def at(photos: Path, model: Instant) -> Path:
    return index(photos, model=model).at


@pytest.mark.parametrize("name", [MANIFEST_FILE, COPY_FILE])
@pytest.mark.parametrize("data", [None, b"", b"{", b"\xff\x00", b"[]", b"{}", "truncated", "changed"])
def test_either_file_can_be_lost_and_indexing_restores_it(
    name: str, data: bytes | str | None, at: Path, photos: Path, model: Instant, caplog: pytest.LogCaptureFixture
) -> None:
    good, encoded = (at / name).read_bytes(), model.encoded
    (at / name).unlink()
    if data is not None:
        changed = {"truncated": good[:-40], "changed": good.replace(b'"images"', b'"texts"')}
        (at / name).write_bytes(data if isinstance(data, bytes) else changed[data])
    with caplog.at_level(logging.WARNING), Collection.open(photos, model) as collection:
        assert len(collection) == 6
    assert ("sightline index" in caplog.text) == (name == MANIFEST_FILE)
    assert not is_intact(at)
    assert index(at=at, model=model).unchanged == 6
    assert (at / name).read_bytes() == good
    assert model.encoded == encoded


def test_a_collection_whose_manifest_is_missing_is_still_found(
    at: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (at / MANIFEST_FILE).unlink()
    monkeypatch.chdir(photos / "beach")
    assert find_collection() == at
    assert find_collection(photos) == at
    assert has_manifest(at)


def test_a_collection_of_an_earlier_version_gets_a_copy(at: Path, photos: Path, model: Instant) -> None:
    (at / COPY_FILE).unlink()
    index(photos, model=model)
    assert is_intact(at)


def test_a_manifest_of_another_model_is_not_taken_for_this_collections(at: Path, photos: Path, model: Instant) -> None:
    older = {**json.loads((at / MANIFEST_FILE).read_text()), "sha256": "c" * 64, "checksum": ""}
    (at / MANIFEST_FILE).write_text(json.dumps(older))
    for attempt in (lambda: Collection.open(at), lambda: index(photos, model=model)):
        with pytest.raises(CollectionError, match="different collections") as caught:
            attempt()
        assert "Delete" in caught.value.way_out
    (at / MANIFEST_FILE).unlink()
    assert index(photos, model=model).unchanged == 6
    assert read_manifest(at).sha256 == model.sha256


def test_without_any_manifest_no_vectors_of_another_model_are_kept(at: Path, photos: Path, model: Instant) -> None:
    with Collection.open(at, model) as collection:
        collection.add_to_album("Zoo", collection.catalog.ids()[:2])
    (at / MANIFEST_FILE).unlink()
    (at / COPY_FILE).unlink()
    other, said = Instant("b" * 64), list[str]()
    put(photos / "new.png", picture(77))
    report = index(photos, model=other, notify=said.append)
    assert report.encoded == 7
    assert any("encoding all items again" in line for line in said)
    with Collection.open(at, other) as collection:
        assert len(collection.catalog.ids_where("album = 'Zoo'")) == 2


def test_without_any_manifest_a_catalog_is_not_trusted(at: Path, photos: Path, model: Instant, tmp_path: Path) -> None:
    with closing(sqlite3.connect(at / "catalog.db")) as connection, connection:
        connection.execute("INSERT INTO roots (raw) VALUES (?)", (bytes(tmp_path / "private"),))
    for name in (CHECKSUM_FILE, MANIFEST_FILE, COPY_FILE):
        (at / name).unlink()
    with pytest.raises(CollectionError, match="private, but was not created by you"):
        index(photos, model=model)
    assert not has_manifest(at)


def test_if_both_are_damaged_the_errors_say_which_to_delete(at: Path, photos: Path, model: Instant) -> None:
    for name in (MANIFEST_FILE, COPY_FILE):
        (at / name).write_bytes(b"{")
    for name in (MANIFEST_FILE, COPY_FILE):
        for attempt in (lambda: Collection.open(at), lambda: index(photos, model=model)):
            with pytest.raises(CollectionError, match=f"{name}: cannot be read") as caught:
                attempt()
            assert "Delete it and index again" in caught.value.way_out
        (at / name).unlink()
    assert index(photos, model=model).encoded == 6


@pytest.mark.parametrize("name", [MANIFEST_FILE, COPY_FILE])
def test_a_full_disk_is_an_error_that_says_so_and_the_next_run_goes_on(
    name: str, photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: str) -> None:
        if path.name == name:
            raise OSError(28, "No space left on device")
        write_atomic(path, data)

    with monkeypatch.context() as patch:
        patch.setattr("sightline.collection.manifest.write_atomic", full)
        with pytest.raises(CollectionError, match=f"{name}: cannot be written: No space left") as caught:
            index(photos, model=model)
    assert "space" in caught.value.way_out
    assert index(photos, model=model).new == 6
    assert is_intact(photos / ".sightline")
