"""A manifest that is lost or damaged costs nothing: its copy is used, and indexing restores it."""

import errno
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from collection.made_up import Instant, picture, put
from sightline.collection import Collection, index
from sightline.collection.catalog.integrity import CHECKSUM_FILE
from sightline.collection.locate import find_collection
from sightline.collection.manifest import (
    COPY_FILE,
    MANIFEST_FILE,
    VECTORS_FOLDER,
    has_manifest,
    is_intact,
    manifest_problem,
    read_manifest,
)
from sightline.errors import CollectionError
from sightline.files import read_regular, write_atomic


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


def test_if_both_are_damaged_the_error_names_the_files_to_delete_and_the_command(
    photos: Path, model: Instant, tmp_path: Path
) -> None:
    at = index(photos, at=tmp_path / "my index", model=model).at
    for name in (MANIFEST_FILE, COPY_FILE):
        (at / name).write_bytes(b"{")
    for attempt in (lambda: Collection.open(at), lambda: index(photos, at=at, model=model)):
        with pytest.raises(CollectionError, match=f"{MANIFEST_FILE}: cannot be read") as caught:
            attempt()
        assert f"Delete {MANIFEST_FILE} and {COPY_FILE}" in caught.value.way_out
        assert f"sightline index FOLDER --at '{at}'" in caught.value.way_out
    for name in (MANIFEST_FILE, COPY_FILE):
        (at / name).unlink()
    assert index(photos, at=at, model=model).encoded == 6


def test_deleting_the_manifest_is_not_advised_if_the_vectors_may_be_on_a_server(at: Path) -> None:
    shutil.rmtree(at / VECTORS_FOLDER)
    for name in (MANIFEST_FILE, COPY_FILE):
        (at / name).write_bytes(b"{")
    with pytest.raises(CollectionError, match="cannot be read") as caught:
        Collection.open(at)
    assert "Restore manifest.json" in caught.value.way_out
    assert "Delete" not in caught.value.way_out


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.ESTALE, errno.ENODEV])
@pytest.mark.parametrize("unreadable", [(MANIFEST_FILE,), (COPY_FILE,), (MANIFEST_FILE, COPY_FILE)])
def test_an_error_that_may_pass_is_not_taken_for_damage(
    code: int, unreadable: tuple[str, ...], at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {MANIFEST_FILE, COPY_FILE} - set(unreadable):
        (at / name).write_bytes(b"{")
    with monkeypatch.context() as patch:
        patch.setattr("sightline.collection.manifest.read_regular", failing(code, unreadable))
        with pytest.raises(CollectionError, match="cannot be read") as caught:
            read_manifest(at)
    assert "try again" in caught.value.way_out
    assert "Delete" not in caught.value.way_out


@pytest.mark.parametrize("code", [errno.EIO, errno.EFBIG])
def test_a_manifest_that_the_disk_cannot_return_is_replaced_by_its_copy(
    code: int, at: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightline.collection.manifest.read_regular", failing(code, (MANIFEST_FILE,)))
    assert read_manifest(at).sha256 == model.sha256


def failing(code: int, names: tuple[str, ...]) -> Callable[[Path, int], bytes]:
    """A `read_regular` that fails for files with these names."""

    def read(path: Path, limit: int) -> bytes:
        if path.name in names:
            raise OSError(code, os.strerror(code), str(path))
        return read_regular(path, limit)

    return read


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        (MANIFEST_FILE, None, "manifest.json is missing"),
        (MANIFEST_FILE, b"{", "manifest.json: cannot be read"),
        (COPY_FILE, b"{", "manifest-copy.json: cannot be read"),
        (COPY_FILE, None, ""),  # of an earlier version, which did not write one
    ],
)
def test_a_missing_copy_is_no_problem_but_a_damaged_one_is(name: str, data: bytes | None, says: str, at: Path) -> None:
    assert manifest_problem(at) == ""
    (at / name).unlink()
    if data is not None:
        (at / name).write_bytes(data)
    assert says in manifest_problem(at)
    assert bool(manifest_problem(at)) == bool(says)


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
