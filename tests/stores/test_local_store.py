"""What only the store of this machine promises: its folder, its files, its speed."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.bundle.encoded import Encoded
from sightline.errors import DamagedStoreError, StoreError
from sightline.stores import local, local_files
from sightline.stores.base import Shape
from sightline.stores.columns import Column
from sightline.stores.head import HEAD_FILE, _digest
from sightline.stores.local import LocalStore
from sightline.stores.local_search import Effort
from sightline.stores.row_index import RowIndex
from stores.plain import SHAPE, Plain, items, queries
from stores.test_any_store import check_whole


def filled(folder: Path, count: int = 20) -> LocalStore:
    store = LocalStore.open(folder, SHAPE, write=True)
    store.add(*items(range(count)))
    store.flush()
    return store


def test_a_missing_store_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no vectors are stored here"):
        LocalStore.open(tmp_path / "nowhere", SHAPE, write=False)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("write", [True, False])
def test_a_store_of_another_shape_is_refused(tmp_path: Path, write: bool) -> None:
    filled(tmp_path).close()
    with pytest.raises(StoreError, match=r"fragments=5.*but.*fragments=6.*was expected") as error:
        LocalStore.open(tmp_path, Shape(12, 6, 3), write=write)
    assert "index again" in error.value.way_out
    LocalStore.open(tmp_path, SHAPE, write=True).close()


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("text", ['{"format": 99}', "[]", "{", '{"format": 1, "shape": {}}'])
def test_a_head_that_cannot_be_understood_is_refused(tmp_path: Path, text: str, write: bool) -> None:
    filled(tmp_path).close()
    (tmp_path / HEAD_FILE).write_text(text)
    with pytest.raises(StoreError, match=HEAD_FILE):
        LocalStore.open(tmp_path, SHAPE, write=write)
    assert (tmp_path / "embeddings.0").stat().st_size == 20 * 2 * SHAPE.embedding


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda counts: counts.pop("codes"), "is damaged: its head file does not list codes"),
        (lambda counts: counts.update(codes=19), "is damaged: its head file lists different numbers of rows"),
        (lambda counts: counts.update(ids=-1), "is damaged: it contains negative numbers"),
    ],
    ids=["missing", "different", "negative"],
)
def test_a_head_that_contradicts_itself_is_refused(
    tmp_path: Path, change: Callable[[dict[str, int]], object], said: str
) -> None:
    filled(tmp_path).close()
    head = json.loads((tmp_path / HEAD_FILE).read_text())
    del head["checksum"]
    change(head["counts"])
    (tmp_path / HEAD_FILE).write_text(json.dumps({**head, "checksum": _digest(head)}))
    with pytest.raises(DamagedStoreError, match=said):
        LocalStore.open(tmp_path, SHAPE, write=False)


@pytest.mark.parametrize("write", [True, False])
def test_a_file_that_was_cut_off_or_is_gone_is_noticed(tmp_path: Path, write: bool) -> None:
    filled(tmp_path).close()
    states = tmp_path / "states.0"
    states.write_bytes(states.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"states\.0: has \d+ bytes, but \d+ were written"):
        LocalStore.open(tmp_path, SHAPE, write=write)
    states.unlink()
    with pytest.raises(StoreError, match="missing"):
        LocalStore.open(tmp_path, SHAPE, write=write)


def test_a_store_opened_for_reading_cannot_be_changed(tmp_path: Path) -> None:
    filled(tmp_path).close()
    reader = LocalStore.open(tmp_path, SHAPE, write=False)
    changes: list[Callable[[], None]] = [
        lambda: reader.add(*items([99])),
        lambda: reader.delete(np.array([1])),
        reader.flush,
        reader.compact,
    ]
    for change in changes:
        with pytest.raises(StoreError, match="reading only"):
            change()
    reader.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    store.close()
    for use in (store.ids, store.stats, store.flush, lambda: store.search(queries(0, 1), 1)):
        with pytest.raises(StoreError, match="closed"):
            use()


def handles(folder: Path) -> int:
    """How many files in a folder this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]  # not the one that lists them
    return sum(str(link.readlink()).startswith(str(folder)) for link in links)


@pytest.mark.skipif(sys.platform != "linux", reason="lists the open files as Linux does")
@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("name", ["ids.0", "deleted.0"])
def test_opening_a_damaged_store_again_and_again_leaves_no_file_open(tmp_path: Path, write: bool, name: str) -> None:
    store = filled(tmp_path)
    store.delete(np.arange(3))
    store.close()
    reader = LocalStore.open(tmp_path, SHAPE, write=False)
    before = handles(tmp_path)
    path = tmp_path / name
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    reader._flushed = replace(reader._flushed, counts={})  # as if another process had written since
    for use in (lambda: LocalStore.open(tmp_path, SHAPE, write=write), reader.refresh):
        with pytest.raises(DamagedStoreError):
            use()
        assert handles(tmp_path) == before
    reader.close()


@pytest.mark.skipif(sys.platform != "linux", reason="lists the open files as Linux does")
def test_whatever_fails_while_a_store_is_opened_no_file_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    filled(tmp_path).close()
    reader = LocalStore.open(tmp_path, SHAPE, write=False)
    reader._flushed = replace(reader._flushed, counts={})  # as if another process had written since
    monkeypatch.setattr(reader, "_device", object())
    before = handles(tmp_path)
    uses: list[tuple[Any, str, Callable[[], object]]] = [
        (local_files, "remove_others", lambda: LocalStore.open(tmp_path, SHAPE, write=True)),
        (local_files, "remove_drafts", lambda: LocalStore.open(tmp_path, SHAPE, write=True)),
        (local, "RowIndex", lambda: LocalStore.open(tmp_path, SHAPE, write=True)),
        (local, "_gpu_index", lambda: LocalStore.open(tmp_path, SHAPE, write=False, prefer_gpu=True)),
        (local, "_gpu_index", reader.refresh),
    ]
    for module, name, use in uses:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            with pytest.raises((StoreError, PermissionError)):
                use()
        assert handles(tmp_path) == before, name
    assert len(reader) == 20
    reader.close()
    assert handles(tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="lists the open files as Linux does")
def test_a_store_that_cannot_be_made_or_compacted_on_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    uses: list[Callable[[], object]] = [
        lambda: LocalStore.open(tmp_path / "new", SHAPE, write=True),
        lambda: LocalStore.reset(tmp_path / "new", SHAPE),
    ]
    for use in uses:
        with monkeypatch.context() as patch:
            patch.setattr(local, "write_head", full)
            patch.setattr(local_files, "write_head", full)
            with pytest.raises(StoreError, match="No space left"):
                use()
        assert handles(tmp_path) == 0
    store = filled(tmp_path / "store")
    store.delete(np.arange(3))
    store.flush()
    with monkeypatch.context() as patch:
        patch.setattr(local, "write_head", full)
        with pytest.raises(StoreError, match="No space left"):
            store.compact()
    assert not list((tmp_path / "store").glob("*.1"))
    assert len(store) == 17
    store.compact()
    assert len(list((tmp_path / "store").glob("ids.1"))) == 1
    store.close()


def test_a_full_disk_costs_nothing_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plain = filled(tmp_path), Plain()
    plain.add(*items(range(20)))
    append = Column.append

    def full(column: Column, records: np.ndarray[Any, Any]) -> None:
        append(column, records[: len(records) // 2])
        raise OSError(28, "No space left on device")

    for broken in ("ids", "embeddings", "states", "fragments"):
        with monkeypatch.context() as patch:
            patch.setattr(Column, "append", lambda c, r, b=broken: (full if c.path.stem == b else append)(c, r))
            with pytest.raises(StoreError, match="No space left"):
                store.add(*items(range(20, 31)))
        check_whole(store, plain)
    store.add(*items(range(20, 31)))
    plain.add(*items(range(20, 31)))
    check_whole(store, plain)
    store.close()
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    check_whole(store, plain)
    store.close()


def test_a_compact_that_fails_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plain = filled(tmp_path), Plain()
    store.delete(np.arange(5))
    plain.add(*items(range(5, 20)))

    def full(column: Column) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Column, "sync", lambda c: full(c) if c.path.suffix == ".1" else None)
        with pytest.raises(StoreError, match="No space left"):
            store.compact()
    check_whole(store, plain)
    store.compact()
    check_whole(store, plain)
    store.close()


def test_compacting_gives_space_back_and_leaves_one_generation(tmp_path: Path) -> None:
    store = filled(tmp_path, 300)
    before = sum(path.stat().st_size for path in tmp_path.iterdir())
    store.delete(np.arange(0, 300, 2))
    store.compact()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 0.6 * before
    assert {path.suffix for path in tmp_path.glob("*.*")} == {".1", ".json"}
    plain = Plain()
    plain.add(*items(range(1, 300, 2)))
    check_whole(store, plain)
    store.close()


def test_what_is_synced_is_synced_before_the_head_speaks_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def seen(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def renamed(path: Path, to: Path) -> Path:
        events.append("rename")
        return replace(path, to)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc")
    store = filled(tmp_path)
    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(Path, "replace", renamed)
    store.add(*items([50, 51]))
    store.delete(np.array([3]))
    store.flush()
    data = {f"{name}.0" for name in ("ids", "embeddings", "codes", "ends", "fragments", "states", "deleted")}
    assert events[-3].startswith("head.json.")
    assert events[-2:] == ["rename", tmp_path.name]
    assert data <= set(events[:-3])
    events.clear()
    store.flush()
    assert events == [], "a flush without changes waits for no disk"
    store.close()


def test_a_deleted_id_may_come_back(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    for _ in range(3):
        store.add(*items([7, 8]))
        store.delete(np.array([7]))
        store.add(*items([7]))
        assert store.ids().tolist() == [7, 8]
        assert store.search(queries(0, 1), 9).ids[0].tolist().count(7) == 1
        store.delete(np.array([7, 8]))
        assert store.ids().tolist() == []
    store.close()


def test_ids_are_found_however_they_came() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(300_000)
    row_index = RowIndex(numbers[:1000], np.arange(10))
    for some in np.array_split(numbers[1000:200_000], 9):
        row_index.append(some)
    row_index.remove(np.arange(100, 200))
    rows = row_index.find(numbers)
    assert (rows[10:100] == np.arange(10, 100)).all()
    assert (rows[200:200_000] == np.arange(200, 200_000)).all()
    for gone in (slice(0, 10), slice(100, 200), slice(200_000, None)):
        assert (rows[gone] == -1).all()
    assert row_index.rows_of(numbers).tolist() == [*range(10, 100), *range(200, 200_000)]
    assert len(row_index) == 200_000 - 110


def clustered(count: int, dim: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors with few true dimensions and a mean far from zero, as models make them."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(99).standard_normal((40, dim), dtype=np.float32)
    offset = 3 * np.random.default_rng(98).standard_normal(dim, dtype=np.float32)
    vectors = rng.standard_normal((count, 40), dtype=np.float32) @ basis + offset
    vectors += 0.3 * rng.standard_normal((count, dim), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30,000 vectors: too many to compare all."""
    folder = tmp_path_factory.mktemp("large") / "store"
    store = LocalStore.open(folder, Shape(256), write=True)
    for start in range(0, 30_000, 10_000):
        vectors = clustered(10_000, 256, start)
        store.add(np.arange(start, start + 10_000), Encoded(vectors, np.ones((10_000, 1), dtype=np.bool_)))
    store.close()
    return folder


@pytest.mark.parametrize("filtered", [False, True])
def test_signs_lose_almost_nothing(large: Path, filtered: bool) -> None:
    queries = clustered(50, 256, 7)
    where = np.arange(0, 30_000, 2) if filtered else None
    quick = LocalStore.open(large, Shape(256), write=False)
    exact = LocalStore.open(large, Shape(256), write=False, effort=Effort(exact_up_to=10**9))
    assert quick.stats().index == "signs, then exact"
    assert exact.stats().index == "exact"
    found, right = quick.search(queries, 20, where), exact.search(queries, 20, where)
    hits = [len(set(a) & set(b)) for a, b in zip(found.ids.tolist(), right.ids.tolist(), strict=True)]
    assert np.mean(hits) / 20 >= 0.97
    scores = [dict(zip(*pair, strict=True)) for pair in zip(right.ids.tolist(), right.scores.tolist(), strict=True)]
    for ids, got, best in zip(found.ids.tolist(), found.scores.tolist(), scores, strict=True):
        assert all(best[number] == score for number, score in zip(ids, got, strict=True) if number in best)
    if where is not None:
        assert np.isin(found.ids, where).all()
    quick.close()
    exact.close()


def test_opening_and_searching_a_large_store_takes_little_memory(large: Path) -> None:
    queries = clustered(1, 256, 7)
    tracemalloc.start()
    store = LocalStore.open(large, Shape(256), write=False)
    store.search(queries, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < store.stats().bytes / 4
    store.close()


def test_a_small_store_is_searched_without_faiss_or_torch(tmp_path: Path) -> None:
    filled(tmp_path).close()
    script = """
import json, sys
from pathlib import Path
import numpy as np
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore
store = LocalStore.open(Path(sys.argv[1]), Shape(12, 5, 3), write=False)
store.search(np.ones((1, 12), dtype=np.float32), 3)
store.close()
print(json.dumps([name for name in ("faiss", "torch") if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_what_lies_beyond_the_head_is_cut_off_when_the_store_is_next_written_to(tmp_path: Path) -> None:
    filled(tmp_path).close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("*.0")}
    for path in tmp_path.glob("*.0"):
        path.write_bytes(path.read_bytes() + b"half an item")
    (tmp_path / "embeddings.1").write_bytes(b"half a generation")
    reader, plain = LocalStore.open(tmp_path, SHAPE, write=False), Plain()
    plain.add(*items(range(20)))
    check_whole(reader, plain)
    reader.close()
    assert (tmp_path / "embeddings.1").exists(), "who only reads leaves everything as it is"
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    check_whole(store, plain)
    store.close()
    assert {path.name: path.stat().st_size for path in tmp_path.glob("*.[01]")} == sizes
