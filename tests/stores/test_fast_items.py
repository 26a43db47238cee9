"""Items of a fast graph: a store knows which they are, and replaces their vectors as a whole or not at all."""

import json
from pathlib import Path

import numpy as np
import pytest

from sightline.errors import DamagedStoreError, StoreError
from sightline.stores.base import RefinableStore
from sightline.stores.head import HEAD_FILE
from sightline.stores.local import LocalStore
from sightline.stores.milvus import MilvusStore
from sightline.stores.postgres import PostgresStore
from stores.plain import SHAPE, Plain, items
from stores.test_any_store import check_whole


def mixed(folder: Path) -> LocalStore:
    """Items 0 to 9, of which the fast graph encoded the last six."""
    store = LocalStore.open(folder, SHAPE, write=True)
    store.add(*items(range(4)))
    store.add(*items(range(4, 10)), fast=True)
    store.flush()
    return store


def fast_of(folder: Path) -> list[int]:
    reader = LocalStore.open(folder, SHAPE, write=False)
    try:
        return reader.fast_ids().tolist()
    finally:
        reader.close()


def test_a_store_knows_which_items_a_fast_graph_encoded(tmp_path: Path) -> None:
    with_fast = mixed(tmp_path)
    assert isinstance(with_fast, RefinableStore)
    assert with_fast.fast_ids().tolist() == [4, 5, 6, 7, 8, 9]
    assert with_fast.fast_ids(np.array([9, 2, 77, 4])).tolist() == [4, 9]
    assert with_fast.fast_ids(np.array([], dtype=np.int64)).tolist() == []
    with_fast.delete(np.array([4, 0]))
    with_fast.compact()
    with_fast.close()
    assert fast_of(tmp_path) == [5, 6, 7, 8, 9]
    plain = Plain()
    plain.add(*items([1, 2, 3, 5, 6, 7, 8, 9]))
    check_whole(LocalStore.open(tmp_path, SHAPE, write=False), plain)


def test_replaced_items_have_their_new_vectors_and_are_no_longer_fast(tmp_path: Path) -> None:
    store, ids = mixed(tmp_path), np.array([8, 5])
    _, other = items([108, 109])
    store.replace(ids, other)
    assert fast_of(tmp_path) == [4, 5, 6, 7, 8, 9], "not flushed yet"
    store.flush()
    for _ in range(2):
        assert fast_of(tmp_path) == [4, 6, 7, 9]
        reader = LocalStore.open(tmp_path, SHAPE, write=False)
        assert reader.ids().tolist() == list(range(10))
        np.testing.assert_allclose(reader.fetch(ids, "embedding").values[:, 0], other.embedding, atol=1e-3)
        found = reader.search(other.embedding, 1)
        assert found.ids[:, 0].tolist() == [8, 5]
        reader.close()
        store.compact()
    store.close()


def test_a_store_says_when_replaced_vectors_take_much_space(tmp_path: Path) -> None:
    store = mixed(tmp_path)
    store.replace(*items([5, 6]))
    assert not store.is_wasteful
    store.replace(*items([7]))
    assert store.is_wasteful
    store.compact()
    assert not store.is_wasteful
    store.close()


def test_a_reader_goes_on_with_the_old_vectors_until_it_looks_again(tmp_path: Path) -> None:
    store = mixed(tmp_path)
    reader = LocalStore.open(tmp_path, SHAPE, write=False)
    before = reader.fetch(np.arange(10), "states").values
    store.replace(np.arange(4, 10), items(range(104, 110))[1])
    store.compact()
    np.testing.assert_array_equal(reader.fetch(np.arange(10), "states").values, before)
    assert reader.fast_ids().tolist() == [4, 5, 6, 7, 8, 9]
    assert reader.refresh()
    assert reader.fast_ids().tolist() == []
    reader.close()
    store.close()


def test_an_unknown_item_cannot_be_replaced(tmp_path: Path) -> None:
    store = mixed(tmp_path)
    with pytest.raises(StoreError, match="id 77 does not exist"):
        store.replace(np.array([5, 77]), items([5, 77])[1])
    assert store.fast_ids().tolist() == [4, 5, 6, 7, 8, 9]
    store.close()


def test_a_store_of_an_older_version_has_no_fast_items_and_takes_some(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    store.add(*items(range(3)))
    store.close()
    head = json.loads((tmp_path / HEAD_FILE).read_text())
    assert head["format"] == 2
    for name in ("counts", "tails"):
        del head[name]["fast"]
    from sightline.stores import head as heads

    del head["checksum"]
    (tmp_path / HEAD_FILE).write_text(json.dumps({**head, "checksum": heads._digest(head)}))
    (tmp_path / "fast.0").unlink()
    assert fast_of(tmp_path) == []
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    store.add(*items([3]), fast=True)
    store.close()
    assert fast_of(tmp_path) == [3]
    assert json.loads((tmp_path / HEAD_FILE).read_text())["format"] == 3, "older versions would forget which are fast"


def test_damage_to_the_list_of_fast_items_is_noticed(tmp_path: Path) -> None:
    mixed(tmp_path).close()
    data = bytearray((tmp_path / "fast.0").read_bytes())
    data[3] ^= 1
    (tmp_path / "fast.0").write_bytes(data)
    with pytest.raises(DamagedStoreError, match=r"fast\.0"):
        fast_of(tmp_path)
    assert (tmp_path / "damaged").exists()


def test_stores_on_servers_do_not_tell_fast_items_apart() -> None:
    for kind in (MilvusStore, PostgresStore):
        assert not hasattr(kind, "fast_ids")
