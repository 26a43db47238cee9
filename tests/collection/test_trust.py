"""A collection that comes with a folder: links lead nowhere, and no server, model or file is used that it names."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from collection.made_up import Instant, picture, put
from sightline.collection import Collection, index
from sightline.collection.catalog.integrity import CHECKSUM_FILE
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.collection.locate import find_collection, model_for_collection
from sightline.collection.manifest import COPY_FILE, MANIFEST_FILE, read_manifest
from sightline.errors import CollectionError, MediaError, SightlineError
from sightline.stores import milvus_server


@pytest.fixture
def brought(photos: Path, model: Instant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a collection that another user made: with another key, in another state folder."""
    with monkeypatch.context() as patch:
        patch.setenv("SIGHTLINE_STATE", str(tmp_path / "their state"))
        index(photos, model=model)
    return photos


def change_manifest(folder: Path, **fields: str) -> None:
    path = folder / ".sightline" / MANIFEST_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": "", **fields}))
    (path.parent / COPY_FILE).unlink()


def change_catalog(folder: Path, query: str, *values: object) -> None:
    at = folder / ".sightline"
    with closing(sqlite3.connect(at / "catalog.db")) as connection, connection:
        connection.execute(query, values)
    (at / CHECKSUM_FILE).unlink(missing_ok=True)


@pytest.fixture
def contacted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Servers that a client was made for."""
    hosts: list[str] = []

    def client(address: milvus_server.Address, timeout: float) -> None:
        hosts.append(address.host)
        raise SightlineError("contacted")

    monkeypatch.setattr(milvus_server, "_client", client)
    monkeypatch.setenv("MILVUS_TOKEN", "secret")
    return hosts


LINKS = ["lock", "manifest.json", "catalog.db", "catalog.db-wal", "vectors", "vectors/lock", "vectors/head.json"]


@pytest.mark.parametrize("name", [*LINKS, "vectors/ids.0", "vectors/embeddings.0", "vectors/ids-sums.0"])
@pytest.mark.parametrize("has_collection", [True, False])
def test_indexing_writes_to_nothing_that_a_link_leads_to(
    name: str, has_collection: bool, photos: Path, tmp_path: Path, model: Instant
) -> None:
    if has_collection:
        index(photos, model=model)
        put(photos / "new.png", picture(77))
    victim = tmp_path / "victim"
    victim.mkdir() if name == "vectors" else victim.write_bytes(b"precious")
    link = photos / ".sightline" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir():
        link.rename(tmp_path / "away")
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    for run in (lambda: index(photos, model=model), lambda: Collection.open(photos, model).search("x", rerank=0)):
        try:
            run()
        except SightlineError:
            continue
    assert victim.read_bytes() == b"precious" if victim.is_file() else not list(victim.iterdir())


@pytest.mark.parametrize("name", ["manifest.json.new", "vectors/head.json.draft", "vectors/head.json.new"])
def test_drafts_of_earlier_versions_are_not_followed(name: str, photos: Path, tmp_path: Path, model: Instant) -> None:
    index(photos, model=model)
    put(photos / "new.png", picture(77))
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (photos / ".sightline" / name).symlink_to(victim)
    assert index(photos, model=model).new == 1
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["lock", "manifest.json", "catalog.db", "vectors/lock", "vectors/head.json"])
def test_a_pipe_in_the_place_of_a_file_is_replaced_or_named_in_an_error_at_once(
    name: str, photos: Path, model: Instant
) -> None:
    index(photos, model=model)
    path = photos / ".sightline" / name
    path.unlink()
    os.mkfifo(path)
    error = within(30, lambda: index(photos, model=model, wait=False))
    if error is None:
        assert path.is_file()
        with Collection.open(photos, model) as collection:
            assert len(collection) == 6
            assert len(collection.search("x", rerank=0).hits) == 6
    else:
        assert isinstance(error, SightlineError)
        assert str(path) in error.what
        assert path.is_fifo()


def within(seconds: float, run: Callable[[], object]) -> Exception | None:
    """Call a function in a thread; returns the error that it raises, if any. It fails if the function takes longer."""
    raised: list[Exception | None] = []

    def call() -> None:
        try:
            run()
        except Exception as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=call, daemon=True)  # one that waits for a pipe does not keep the process alive
    thread.start()
    thread.join(seconds)
    assert raised, f"not done after {seconds} seconds"
    return raised[0]


def test_a_collection_that_somebody_else_made_can_be_searched(brought: Path, model: Instant) -> None:
    with Collection.open(brought, model) as collection:
        assert len(collection) == 6
        assert not collection.manifest.is_trusted
        assert source_of(collection.files()[0]).read()


def test_a_server_that_a_collection_names_is_not_asked(brought: Path, model: Instant, contacted: list[str]) -> None:
    change_manifest(brought, store="milvus://evil.example/photos", owner="x")
    uses: list[Callable[[], object]] = [
        lambda: Collection.open(brought, model),
        lambda: index(brought, model=model),
    ]
    for use in uses:
        with pytest.raises(CollectionError, match=r"refers to the server milvus://evil\.example"):
            use()
    assert contacted == []


def test_a_server_that_the_user_names_is_asked(brought: Path, model: Instant, contacted: list[str]) -> None:
    for use in (
        lambda: Collection.open("milvus://own.example/photos", model),
        lambda: index(brought, at=brought / "new", model=model, store="milvus://own.example/photos"),
    ):
        with pytest.raises(SightlineError, match="contacted"):
            use()
    assert contacted == ["own.example"] * 2


def test_a_manifest_that_was_changed_is_not_trusted(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    assert read_manifest(photos / ".sightline").is_trusted
    change_manifest(photos, store="milvus://evil.example/photos")
    assert not read_manifest(photos / ".sightline").is_trusted


@pytest.mark.parametrize("location", ["hf:evil/model", "/somewhere/model", "model"])
def test_a_model_that_a_collection_names_is_not_loaded(
    location: str, brought: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sightline.collection import locate

    loaded: list[str] = []
    monkeypatch.setattr(locate, "model_at", lambda place, sha256: None if place == "default" else place)
    monkeypatch.setattr(locate, "load", loaded.append)
    change_manifest(brought, location=location)
    at = brought / ".sightline"
    with pytest.raises(CollectionError, match="--model FOLDER"):
        model_for_collection(at, read_manifest(at))
    assert loaded == []


def test_files_outside_its_folder_are_not_read_for_a_collection_of_somebody_else(
    brought: Path, model: Instant, tmp_path: Path
) -> None:
    secret = put(tmp_path / "private" / "secret.png", picture(5))
    change_catalog(brought, "UPDATE roots SET raw = ?", os.fsencode(secret.parent))
    change_catalog(brought, "UPDATE files SET raw = ?, path = 'x' WHERE id = 1", b"secret.png")
    with Collection.open(brought, model) as collection, pytest.raises(MediaError, match="outside the folder"):
        source_of(next(file for file in collection.files() if file.path == "x")).read()
    with pytest.raises(CollectionError, match=f"refers to {secret.parent}, but was not created by you"):
        index(at=brought / ".sightline", model=model)
    assert index(secret.parent, at=brought / ".sightline", model=model)


def test_a_list_of_urls_of_somebody_else_is_not_fetched(
    brought: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sightline.media import remote

    fetched: list[str] = []
    monkeypatch.setattr(remote, "read_range", lambda url, *_: fetched.append(url))
    (brought / "photos.urls").write_text("http://127.0.0.1/secret.png\n")
    change_catalog(brought, "INSERT INTO roots (raw) VALUES (?)", b"../photos.urls")
    for places in ([], [brought]):
        with pytest.raises(CollectionError, match=r"photos\.urls"):
            index(places, at=brought / ".sightline", model=model)
    assert fetched == []


def test_indexing_a_folder_oneself_makes_its_collection_ones_own(brought: Path, model: Instant) -> None:
    assert index(brought, model=model).unchanged == 6
    assert read_manifest(brought / ".sightline").is_trusted


def test_a_collection_of_another_user_in_a_parent_folder_is_refused(
    brought: Path, monkeypatch: pytest.MonkeyPatch, model: Instant
) -> None:
    from sightline.collection import trust

    monkeypatch.chdir(brought / "beach")
    assert find_collection() == brought / ".sightline"
    monkeypatch.setattr(trust.os, "geteuid", lambda: 4242)
    monkeypatch.setattr(Path, "lstat", lambda path: os.stat_result((0o40755, 0, 0, 0, 777, 0, 0, 0, 0, 0)))
    with pytest.raises(CollectionError, match="belongs to another user"):
        find_collection()
    with pytest.raises(CollectionError, match="belongs to another user"):
        index(brought, model=model)
    assert find_collection(brought) == brought / ".sightline", "but one that is named is used"


def test_a_collection_that_is_a_link_is_refused_unless_named(
    photos: Path, tmp_path: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (photos / ".sightline").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CollectionError, match="a link to another folder"):
        index(photos, model=model)
    assert index(photos, at=tmp_path / "elsewhere", model=model).new == 6
    monkeypatch.chdir(photos)
    with pytest.raises(CollectionError, match="a link to another folder"):
        find_collection()


def test_without_a_state_folder_everything_in_the_folder_still_works(
    photos: Path, model: Instant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIGHTLINE_STATE", str(tmp_path / "file" / "state"))
    assert index(photos, model=model).new == 6
    assert index(photos, model=model).unchanged == 6
    with Collection.open(photos, model) as collection:
        assert len(collection.search("x", rerank=0).hits) > 0
