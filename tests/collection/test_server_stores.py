"""A collection with its vectors on a server that is away, or whose store is created while the run is killed."""

import sys
from pathlib import Path

import pytest

from collection.made_up import Instant, contents
from sightline.collection import Collection, index
from sightline.collection.indexing import create
from sightline.collection.indexing.remove import delete_collection
from sightline.errors import CollectionError, StoreError, UnreachableServerError
from sightline.stores.base import Columns, Shape
from sightline.stores.local import LocalStore
from sightline.stores.opening import REMOTE_STORES

URL, OTHER = "made-up://server/photos", "made-up://server/others"


class Server:
    """A server in a folder, which can be switched off."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_up = folder, True

    def normalize_url(self, url: str) -> str:
        return url

    def read_description(self, url: str) -> str | None:
        path = self._store(url) / "description"
        return path.read_text() if path.exists() else None

    def open_url(
        self, url: str, shape: Shape, *, write: bool, columns: Columns, description: str = "", created_as: str = ""
    ) -> LocalStore:
        folder = self._store(url)
        store = LocalStore.open(folder, shape, write=write)
        if write and not (folder / "description").exists():
            (folder / "description").write_text(description)
        return store

    def _store(self, url: str) -> Path:
        if not self.is_up:
            raise UnreachableServerError("no server answers", "Start it.")
        return self.folder / url.rpartition("/")[2]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server(tmp_path / "server")
    monkeypatch.setitem(REMOTE_STORES, "made-up", found)  # type: ignore[arg-type]
    return found


def killed_before_the_manifest(photos: Path, monkeypatch: pytest.MonkeyPatch, store: str | None = None) -> None:
    """Index pictures, but end when the store exists and its manifest does not."""
    with monkeypatch.context() as patch:
        patch.setattr(create, "write_manifest", lambda *_: sys.exit())
        with pytest.raises(SystemExit):
            index(photos, model=Instant(), store=store)


def test_a_url_is_not_saved_before_the_server_has_answered(photos: Path, server: Server) -> None:
    server.is_up = False
    with pytest.raises(StoreError, match="no server answers"):
        index(photos, model=Instant(), store=URL)
    with pytest.raises(CollectionError, match="is not a collection"):
        Collection.open(photos)
    assert index(photos, model=Instant()).new == 6
    assert len(contents(photos)) == 6


def test_another_url_is_not_saved_before_its_server_has_answered(photos: Path, server: Server) -> None:
    index(photos, model=Instant(), store=URL)
    server.is_up = False
    with pytest.raises(StoreError, match="no server answers"):
        index(photos, model=Instant(), store=OTHER)
    server.is_up = True
    assert index(photos, model=Instant()).unchanged == 6
    assert not (server.folder / "others").exists()


def test_a_run_that_is_killed_after_it_created_the_store_can_be_repeated(
    photos: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_the_manifest(photos, monkeypatch, store=URL)
    assert (server.folder / "photos" / "description").exists()
    assert index(photos, model=Instant(), store=URL).new == 6
    with pytest.raises(CollectionError, match="belongs to a collection other than"):
        index(photos, at=photos.with_name("another"), model=Instant(), store=URL)


def test_a_local_run_that_is_killed_before_the_manifest_is_written_loses_nothing(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_the_manifest(photos, monkeypatch)
    said: list[str] = []
    assert index(photos, model=Instant(), notify=said.append).new == 6
    assert said == []


def test_a_collection_with_vectors_on_a_server_is_not_deleted(photos: Path, server: Server) -> None:
    at = index(photos, model=Instant(), store=URL).at
    with pytest.raises(CollectionError, match=f"its vectors are on a server, at {URL}"):
        delete_collection(photos)
    assert at.is_dir()


def test_a_collection_can_be_deleted_once_its_vectors_on_the_server_are(photos: Path, server: Server) -> None:
    at = index(photos, model=Instant(), store=URL).at
    (server.folder / "photos" / "description").unlink()
    delete_collection(photos, notify=pytest.fail)
    assert not at.exists()


def test_a_collection_of_a_server_that_is_away_is_deleted_with_a_message(photos: Path, server: Server) -> None:
    at = index(photos, model=Instant(), store=URL).at
    server.is_up = False
    said: list[str] = []
    delete_collection(photos, notify=said.append)
    assert said == [f"no server answers\nOnly {at} is deleted. If there are vectors at {URL}, they stay there."]
    assert not at.exists()
