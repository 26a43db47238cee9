"""What is particular to collections on a Milvus server: its indexes, partitions and page of the docs."""

import time
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from collection.made_up import Instant
from scale.milvus import MilvusServer
from scale.photos import names
from sightline.collection import Collection, index
from sightline.doctor import examine
from sightline.errors import CollectionError, StoreError
from sightline.stores.milvus import MilvusStore
from sightline.stores.milvus_address import INDEXES, IndexType, parse_address
from stores.plain import SHAPE, items, queries

pytestmark = pytest.mark.scale


@pytest.fixture
def url(milvus: MilvusServer) -> str:
    """A store that nobody has used."""
    return milvus.url(f"photos_{uuid4().hex}")


def test_a_server_that_is_away_is_named_and_the_way_out_told(tmp_path: Path) -> None:
    pytest.importorskip("pymilvus")
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"no Milvus server answers at 127\.0\.0\.1:1:") as caught:
        MilvusStore.open(parse_address("milvus://127.0.0.1:1/photos"), SHAPE, write=False, patience=1.5)
    assert "Start it, or check the address" in caught.value.way_out
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", INDEXES)
def test_every_index_finds_the_nearest(milvus: MilvusServer, name: str) -> None:
    address = parse_address(milvus.url(f"index_{uuid4().hex}", f"index={name}"))
    try:
        store = MilvusStore.open(address, SHAPE, write=True, patience=20)
    except StoreError as error:
        pytest.skip(f"{milvus.kind} has no {name}: {error.what}")
    store.add(*items(np.arange(300)))
    store.compact()
    found, asked = store.search(queries(0, 5), 3), queries(0, 5)
    embedding = items(np.arange(300))[1].embedding.astype(np.float16).astype(np.float32)
    best = np.sort(asked @ embedding.T, axis=1)[:, ::-1][:, :3]
    np.testing.assert_allclose(found.scores, best, atol=0.02)
    np.testing.assert_allclose(found.scores, (asked[:, None] * embedding[found.ids]).sum(axis=-1), atol=1e-6)
    store.close()


def test_the_default_index_suits_the_server(photos: Path, milvus: MilvusServer, tmp_path: Path) -> None:
    url = milvus.url(f"usual_{uuid4().hex}", "consistency=Session")
    index(photos, at=tmp_path / "at", model=Instant(), store=url)
    assert len(names(url)) == len(names(tmp_path / "at")) == 13
    with Collection.open(url) as shared:
        assert shared.store.stats().index == ("milvus, flat" if "Lite" in milvus.kind else "milvus, hnsw")


def test_a_refused_index_leaves_no_store(
    photos: Path, milvus: MilvusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INDEXES, "flat", IndexType("NONESUCH", {}))
    name = f"refused_{uuid4().hex}"
    for _ in range(2):
        with pytest.raises(StoreError, match="index"):
            index(photos, at=tmp_path / "at", model=Instant(), store=milvus.url(name))
        with pytest.raises(CollectionError, match="no collection at this URL"):
            Collection.open(milvus.url(name))
    monkeypatch.undo()
    assert index(photos, at=tmp_path / "at", model=Instant(), store=milvus.url(name)).new == 14
    assert len(names(milvus.url(name))) == 13


def test_a_store_without_an_index_is_found_and_completed(photos: Path, url: str, tmp_path: Path) -> None:
    from pymilvus import MilvusClient

    at, address = tmp_path / "at", parse_address(url)
    index(photos, at=at, model=Instant(), store=url)
    before = names(url)
    client = MilvusClient(f"http://{address.host}:{address.port}", dedicated=True)
    client.release_collection(address.name)
    client.drop_index(address.name, "embedding")
    client.close()
    with pytest.raises(StoreError, match="incomplete, because it has no index"):
        Collection.open(url)
    found = [finding for finding in examine(at) if finding.subject == "Collection"]
    assert [(one.state, "sightline index --at" in one.way_out) for one in found] == [("broken", True)]
    assert index(at=at, model=Instant()).unchanged == 14
    assert names(url) == before


FILTERS = [
    "taken = '2021'",
    "taken = '2022'",
    "taken = '2022-03'",
    "taken >= '2021-02'",
    "folder = 'Beach/far'",
    "folder = 'Shore/far'",
    "folder = 'town'",
    "folder = 'copies'",
    "folder in ('Beach/far', 'town')",
    "folder = 'town' and taken = '2022' or width > 30",
    "taken = '2022' and path like '%w%'",
]


@pytest.mark.parametrize("partition", ["year", "month", "folder"])
def test_a_divided_store_is_searched_as_one(photos: Path, milvus: MilvusServer, tmp_path: Path, partition: str) -> None:
    url = milvus.url(f"divided_{uuid4().hex}", f"index=flat&partition={partition}")
    try:
        index(photos, at=tmp_path / "at", model=Instant(), store=url)
    except StoreError as error:
        pytest.skip(f"{milvus.kind} cannot divide a store: {error.what}")
    fruitful = set()
    for moved in (False, True):
        if moved:
            (photos / "Beach").rename(photos / "Shore")
            index(photos, at=tmp_path / "at", model=Instant())
        index(photos, at=tmp_path / "local", model=Instant())
        assert len(names(url)) == 13
        assert names(url, where="taken > '2022' and taken < '2021'") == []
        for where in FILTERS:
            found = names(tmp_path / "local", where=where)
            assert names(url, where=where) == found, where
            fruitful |= {where} if found else set()
    assert fruitful == set(FILTERS)
