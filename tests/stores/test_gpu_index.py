"""A store's embeddings on a GPU: the same answers as on the processor, and only what is new is ever sent.

What runs on a GPU runs here in plain torch; tests/kernels compares the two.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from collection.made_up import Instant, picture, put
from sightline import device as gpu
from sightline.collection import Collection, index
from sightline.kernels.scan import Scan
from sightline.server.current_collection import CurrentCollection
from sightline.stores import gpu_index
from sightline.stores.base import Ids
from sightline.stores.local import LocalStore
from stores.plain import SHAPE, Plain, check_found, items, queries


@pytest.fixture(autouse=True)
def on_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose GPU is torch on the processor, with a gigabyte."""
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(gpu_index, "DEVICE", "cpu")
    monkeypatch.setattr(gpu_index, "free_bytes", lambda: 1 << 30)
    yield
    assert not gpu_index._all_sent, "what nobody uses any more is let go of"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were sent each time."""
    counts: list[int] = []
    write = Scan._write

    def counted(self: Scan, vectors: torch.Tensor) -> None:
        counts.append(len(vectors))
        write(self, vectors)

    monkeypatch.setattr(Scan, "_write", counted)
    return counts


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LocalStore]:
    """A store of 200 items, many of which are equally near to everything."""
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    store.add(*items(range(200)))
    store.flush()
    yield store
    store.close()


def on_gpu(folder: Path) -> LocalStore:
    store = LocalStore.open(folder, SHAPE, write=False, prefer_gpu=True)
    settle(store)
    return store


def settle(store: LocalStore) -> None:
    assert store._device is not None
    store._device.wait()


def check(store: LocalStore, folder: Path) -> None:
    """Assert that a store finds exactly what one finds that searches on the processor."""
    assert store.stats().index == "exact, on the GPU"
    plain = LocalStore.open(folder, SHAPE, write=False)
    every = plain.ids()
    wheres: list[Ids | None] = [None, every[::3], every[:5], every[:0]]
    for k in (1, 10, 300):
        for where in wheres:
            asked = queries(k, 3)
            found, right = store.search(asked, k, where), plain.search(asked, k, where)
            np.testing.assert_array_equal(found.ids, right.ids)
            np.testing.assert_array_equal(found.scores, right.scores)
    plain.close()


def test_it_finds_what_the_processor_finds(tmp_path: Path, writer: LocalStore) -> None:
    store, plain = on_gpu(tmp_path), Plain()
    plain.add(*items(range(200)))
    check(store, tmp_path)
    check_found(store.search(queries(0, 4), 9), plain, queries(0, 4), 9, None, 1e-6)
    store.close()
    assert not gpu_index._all_sent


def test_what_is_added_and_deleted_is_seen_after_a_refresh(tmp_path: Path, writer: LocalStore, sent: list[int]) -> None:
    store = on_gpu(tmp_path)
    for first in range(200, 500, 100):
        writer.delete(np.arange(first - 200, first - 150))
        writer.add(*items(range(first, first + 100)))
        writer.flush()
        assert store.refresh()
        settle(store)
        check(store, tmp_path)
    assert sent == [200, 100, 100, 100]
    store.close()


def test_of_equals_the_lower_id_comes_first_wherever_it_stands(tmp_path: Path, writer: LocalStore) -> None:
    """An id that was deleted and added again stands after higher ones."""
    numbers, encoded = items(range(0, 70, 7))  # all with the same embedding
    writer.delete(numbers)
    writer.add(numbers[::-1].copy(), encoded)
    writer.flush()
    store = on_gpu(tmp_path)
    check(store, tmp_path)
    found = store.search(encoded.embedding[:1], 12)
    assert found.ids[0].tolist() == list(range(0, 84, 7))
    store.close()


def test_a_store_that_is_opened_again_sends_only_what_is_new(
    tmp_path: Path, writer: LocalStore, sent: list[int]
) -> None:
    """As a server does: the new one is opened before the old one is closed."""
    old = on_gpu(tmp_path)
    writer.add(*items(range(200, 210)))
    writer.delete(np.arange(20))
    writer.flush()
    new = on_gpu(tmp_path)
    assert sent == [200, 10]
    right = LocalStore.open(tmp_path, SHAPE, write=False)
    for _ in range(2):
        assert 0 in old.search(queries(1, 1), 200).ids
        assert 205 not in old.search(queries(1, 1), 200).ids
        assert new.search(queries(1, 1), 200).ids.tolist() == right.search(queries(1, 1), 200).ids.tolist()
    old.close()
    check(new, tmp_path)
    for store in (new, right):
        store.close()


def test_after_compacting_everything_is_sent_anew(tmp_path: Path, writer: LocalStore, sent: list[int]) -> None:
    store = on_gpu(tmp_path)
    writer.delete(np.arange(50))
    writer.compact()
    assert store.refresh()
    settle(store)
    assert sent == [200, 150]
    check(store, tmp_path)
    store.close()


def test_while_embeddings_are_on_their_way_the_processor_searches(
    tmp_path: Path, writer: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, up_to = threading.Event(), gpu_index._Sent.up_to

    def waiting(sent: gpu_index._Sent, embeddings: gpu_index.Float16Array) -> Scan:
        go_on.wait(10)
        return up_to(sent, embeddings)

    monkeypatch.setattr(gpu_index._Sent, "up_to", waiting)
    store = LocalStore.open(tmp_path, SHAPE, write=False, prefer_gpu=True)
    assert store.stats().index == "exact"
    before = store.search(queries(2, 2), 5)
    go_on.set()
    settle(store)
    assert store.stats().index == "exact, on the GPU"
    assert store.search(queries(2, 2), 5).ids.tolist() == before.ids.tolist()
    store.close()


def test_embeddings_that_do_not_fit_stay_where_they_are(
    tmp_path: Path, writer: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    needed = 200 * SHAPE.embedding * 2 * 9 // 8
    for free, fits in ((needed, False), (needed * 10 // 9 + 1, True)):
        monkeypatch.setattr(gpu_index, "free_bytes", lambda free=free: free)
        store = on_gpu(tmp_path)
        assert store.stats().index == ("exact, on the GPU" if fits else "exact")
        assert store.search(queries(3, 1), 4).ids.min() >= 0
        store.close()
    assert f"200 embeddings take {needed} bytes" in caplog.text


@pytest.mark.parametrize(
    ("rows", "free", "dtype"), [(100, 1 << 30, "int8"), (10_000, 1 << 30, "float16"), (100, 7000, "float16")]
)
def test_many_embeddings_are_scanned_in_int8_if_there_is_room(
    rows: int, free: int, dtype: str, tmp_path: Path, writer: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []
    made = Scan.__init__

    def noted(scan: Scan, vectors: object, dtype: str, **options: str) -> None:
        chosen.append(dtype)
        made(scan, vectors, dtype, **options)

    monkeypatch.setattr(Scan, "__init__", noted)
    monkeypatch.setattr(gpu_index, "INT8_ROWS", rows)
    monkeypatch.setattr(gpu_index, "free_bytes", lambda: free)
    store, plain = on_gpu(tmp_path), LocalStore.open(tmp_path, SHAPE, write=False)
    assert chosen == [dtype]
    assert store.search(queries(3, 4), 5).ids.tolist() == plain.search(queries(3, 4), 5).ids.tolist()
    store.close()
    plain.close()


def test_when_the_gpu_fails_the_processor_goes_on(
    tmp_path: Path, writer: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = on_gpu(tmp_path)
    before = store.search(queries(4, 2), 5)

    def failing(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Scan, "near", failing)
    with caplog.at_level(logging.WARNING):
        after = store.search(queries(4, 2), 5)
    assert after.ids.tolist() == before.ids.tolist()
    assert store.stats().index == "exact"
    assert "out of memory" in caplog.text
    store.close()


@pytest.mark.parametrize("write", [True, False])
def test_a_store_that_is_searched_once_asks_for_no_gpu(
    tmp_path: Path, write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    LocalStore.open(tmp_path, SHAPE, write=True).close()
    monkeypatch.setattr(gpu, "has_gpu", lambda: pytest.fail("torch would be imported"))
    store = LocalStore.open(tmp_path, SHAPE, write=write)
    assert store.stats().index == "exact"
    store.close()


def test_an_empty_store_is_filled_later(tmp_path: Path) -> None:
    writer = LocalStore.open(tmp_path, SHAPE, write=True)
    store = on_gpu(tmp_path)
    assert store.search(queries(5, 1), 3).ids.tolist() == [[-1, -1, -1]]
    writer.add(*items(range(9)))
    writer.flush()
    assert store.refresh()
    settle(store)
    check(store, tmp_path)
    store.close()
    writer.close()


def test_a_server_searches_on_the_gpu_and_sends_what_is_indexed_meanwhile(tmp_path: Path, sent: list[int]) -> None:
    model = Instant()
    put(tmp_path / "0.png", picture(0))
    index(tmp_path, model=model)
    current = CurrentCollection(tmp_path / ".sightline", model)
    with Collection.open(tmp_path) as searched_once:
        assert searched_once.store.stats().index == "exact"
    for number in (1, 2, 3):
        with current.use() as collection:
            assert isinstance(collection.store, LocalStore)
            settle(collection.store)
            assert collection.store.stats().index == "exact, on the GPU"
        put(tmp_path / f"{number}.png", picture(number))
        index(tmp_path, model=model)
        assert current.renew()
    with current.use() as collection:
        assert isinstance(collection.store, LocalStore)
        settle(collection.store)
    assert sent == [1, 1, 1, 1]
    current.close()
