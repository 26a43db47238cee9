"""A collection whose vectors are on a real server: any machine finds what the one that indexed it finds."""

import json
import re
import shlex
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from collection.made_up import Instant, contents, picture, put
from scale.photos import names
from scale.servers import LocalServer
from sightline import cli
from sightline.collection import Collection, index
from sightline.collection.catalog.database import Catalog
from sightline.collection.remote.shared_catalog import SharedCatalog
from sightline.errors import CollectionError, ServeError

PAGES = {
    "postgresql": ("postgres.md", "postgresql://app@db.example.org/shop/photos"),
    "milvus": ("milvus.md", "milvus://vectors.example.org:19530/photos"),
}


@pytest.fixture(params=["postgres", pytest.param("milvus", marks=pytest.mark.scale)])
def server(request: pytest.FixtureRequest) -> LocalServer:
    """A server of each kind."""
    found: LocalServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def url(server: LocalServer) -> str:
    """A store that nobody has used."""
    return server.url()


def test_a_machine_that_never_indexed_finds_what_a_local_collection_does(
    photos: Path, url: str, tmp_path: Path, tiny_bundle: Path
) -> None:
    index(photos, at=tmp_path / "local", model=tiny_bundle)
    index(photos, at=tmp_path / "shared", model=tiny_bundle, store=url)
    answers = []
    for at in (tmp_path / "local", tmp_path / "shared", url):
        with Collection.open(at, tiny_bundle) as collection:
            assert len(collection) == 13
            result = collection.search("a red square", k=13, rerank=13, late=13)
            answers.append([(hit.id, hit.path, hit.file, hit.copies, round(hit.score, 4), hit.stage) for hit in result])
            assert result.hits[0].stage == "match"
    assert answers[0] == answers[1] == answers[2]
    assert not (tmp_path / "shared" / "vectors").exists()


FILTERS = [
    "taken >= '2021'",
    "taken < '2022-03' or width > 12",
    "taken = '2021' and not width = 24",
    "taken <= '2021-03'",
    "taken > '2021-03'",
    "taken != '2021-02-07'",
    "not taken between '2021' and '2022'",
    "taken in ('2021-02', '2023')",
    "not (taken is null or latitude > 42)",
    "latitude is not null and longitude < 0",
    "path like 'beach/%'",
    "path not like 'BEACH/%'",
    "path like '%/1_.png' or name = '3.png'",
    "folder = 'copies'",
    "folder = 'town' and name != '2.png'",
    "folder = '' and not size > 100000",
    "path = 'copies/twin.png' or path = 'top.png'",
    "width > height and id <= 7",
    "height >= width",
    "width in (12, 36)",
    "width between 13 and 24.5",
    "text is null and modified like '2020%'",
    "modified < '2019' or path is null",
    "name = 'O''Brien \"x\".png'",
    "id in (1, 3, 99) or id = 2.0",
    "path like 'ärger/ÜBUNG%'",
    "folder not like '%Ä%'",
]


def test_a_filter_means_the_same_wherever_it_is_answered(photos: Path, url: str, tmp_path: Path) -> None:
    put(photos / "Ärger" / "Übung.png", picture(77))
    index(photos, at=tmp_path / "at", model=Instant(), store=url)
    with Collection.open(tmp_path / "at") as local, Collection.open(url) as shared:
        for where in FILTERS:
            assert shared.catalog.ids_where(where).tolist() == local.catalog.ids_where(where).tolist(), where
        assert len(local.catalog.ids_where("path like 'ärger/ÜBUNG%'")) == 1
    for where in FILTERS[::4]:
        assert names(url, where=where) == names(tmp_path / "at", where=where)


def test_a_filter_that_servers_understand_is_pushed_down_to_them(photos: Path, url: str, tmp_path: Path) -> None:
    index(photos, at=tmp_path / "at", model=Instant(), store=url)
    with Collection.open(url) as shared:
        assert isinstance(shared.catalog, SharedCatalog)
        narrowed, ids = shared.catalog.narrowed(shared.store, "taken >= '2021' and path like 'beach/%'")
        assert ids is None
        assert narrowed.stats().items == len(narrowed.ids()) == 4
        assert narrowed.search(np.ones((1, 16), dtype=np.float32), 9).ids[0].tolist()[4:] == [-1] * 5
        narrowed, ids = shared.catalog.narrowed(shared.store, "name like '%1.png'")
        assert (ids is None) == url.startswith("postgresql")  # Milvus cannot
        assert len(narrowed.ids() if ids is None else ids) == 2


def test_what_changes_on_the_disk_is_seen_by_all_machines(photos: Path, url: str, tmp_path: Path) -> None:
    at = tmp_path / "at"
    index(photos, at=at, model=Instant(), store=url)
    with Collection.open(url, Instant()) as elsewhere:
        months = elsewhere.timeline().months()
        (photos / "town" / "0.png").rename(photos / "moved.png")
        (photos / "town" / "2.png").unlink()
        (photos / "town" / "4.png").unlink()
        put(photos / "again.png", (photos / "top.png").read_bytes())
        put(photos / "new.png", picture(100))
        report = index(at=at, model=Instant())
        assert (report.new, report.moved, report.deleted) == (2, 1, 2)
        if url.startswith("postgresql"):
            assert elsewhere.timeline().months() != months
        paths = {file.path for file in elsewhere.files()}
        found = elsewhere.search("a red square", k=20, duplicates="show")
        assert len(elsewhere) == len(found) == 13
    assert paths == {path.relative_to(photos).as_posix() for path in photos.rglob("*.png")}
    assert {hit.path for hit in found} | {copy.name for hit in found for copy in hit.copies} >= {"moved.png", "new.png"}
    assert names(url) == names(at)


def test_a_store_is_written_from_one_folder_only(photos: Path, url: str, tmp_path: Path) -> None:
    index(photos, at=tmp_path / "at", model=Instant(), store=url)
    with pytest.raises(CollectionError, match="belongs to a collection other than"):
        index(photos, at=tmp_path / "other", model=Instant(), store=url)
    with pytest.raises(CollectionError, match="indexed with the model"), Collection.open(url) as collection:
        collection.check_model(Instant("b" * 64))  # type: ignore[arg-type]
    assert len(names(url)) == 13


def test_folders_and_stores_are_not_confused(photos: Path, url: str, tmp_path: Path) -> None:
    index(photos, at=tmp_path / "at", model=Instant())
    with pytest.raises(CollectionError, match="in its own folder"):
        index(photos, at=tmp_path / "at", model=Instant(), store=url)
    with pytest.raises(CollectionError, match="--store"):
        index(photos, at=url, model=Instant())
    with pytest.raises(CollectionError, match="no collection at this URL"):
        Collection.open(url)


def test_a_server_answers_from_a_store(photos: Path, url: str, tmp_path: Path, tiny_bundle: Path) -> None:
    from fastapi.testclient import TestClient

    from sightline.server.app import create_app
    from sightline.server.limits import Limits
    from sightline.server.run import ServedCollection

    index(photos, at=tmp_path / "at", model=tiny_bundle, store=url)
    opened = ServedCollection.open(url, tiny_bundle, Limits())
    try:
        with pytest.raises(ServeError, match="on another machine"):
            opened.updaters(True, print)
        with TestClient(
            create_app(opened.service, host="127.0.0.1", token=None), base_url="http://127.0.0.1"
        ) as client:
            found = client.get("/v1/search", params={"q": "a red square", "k": 3}).json()
            around = client.get("/v1/filters").json()
            photos.rename(tmp_path / "elsewhere")
            stored = url.startswith("postgresql")  # thumbnails may also come from the cache of this machine
            forms = ("image", "thumbnail") if stored else ("image",)
            shown = [client.get(found["hits"][0][form]) for form in forms]
    finally:
        opened.close()
    assert len(found["hits"]) == 3
    assert {"path": "Beach/far", "items": 6} in around["folders"]
    expected = (200, "image/jpeg") if stored else (404, "application/problem+json")
    assert {(one.status_code, one.headers["content-type"]) for one in shown} == {expected}


def test_the_commands_of_its_page_take_a_url(photos: Path, url: str, tmp_path: Path, tiny_bundle: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    name, named = PAGES[url.partition(":")[0]]
    page = (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")
    lines = [shlex.split(line.replace(named, url)) for line in re.findall("^sightline (.*)$", page, re.MULTILINE)]
    here, elsewhere = ([str(photos) if part == "photos" else part for part in line] for line in lines[1:3])
    run("index", photos, *lines[0][2:], "--model", tiny_bundle)
    found = [json.loads(run(*line, "--model", tiny_bundle, "--json"))["hits"] for line in (here, elsewhere)]
    assert found[0]
    assert found[1]
    assert all(hit["taken"] >= "2023-06" for hit in found[1])
    assert [line[0] for line in lines] == ["index", "search", "search", "serve"]
    assert lines[3][1:] == ["--at", url]


def test_killing_the_server_while_indexing_loses_nothing(tmp_path: Path, server: LocalServer) -> None:
    photos, at, own = tmp_path / "photos", tmp_path / "at", type(server)(tmp_path / "own")
    for number in range(60):
        put(photos / f"{number}.png", picture(number))
    own.start()
    committed: list[int] = []
    killed = threading.Event()

    class Slow(Instant):
        def encode_images(self, pixels: np.ndarray) -> object:  # type: ignore[override]
            time.sleep(0.15)
            if self.encoded >= 24 and not killed.is_set():
                own.kill()
                killed.set()
            return super().encode_images(pixels)

    def restart() -> None:
        killed.wait(60)
        with closing(Catalog.open(at)) as catalog:
            committed.extend(catalog.ids())
        time.sleep(1)
        own.start()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        report = index(photos, at=at, model=Slow(), store=own.url("killed"))  # type: ignore[arg-type]
        thread.join()
        assert killed.is_set()
        assert report.new == 60
        assert len(contents(at)) == 60
        with Collection.open(own.url("killed")) as elsewhere:
            assert set(committed) <= set(elsewhere.store.ids().tolist())
            assert len(elsewhere.files()) == 60
    finally:
        thread.join()
        own.kill()
        own.remove()
