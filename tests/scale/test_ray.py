"""A Ray cluster of three nodes indexes what one machine does, though it loses one of them."""

import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collection.made_up import picture, put
from collection.shards import served
from scale.nodes import Nodes
from sightline.collection import Collection, IndexingInterrupted, Report, index
from sightline.collection.remote import ray

pytest.importorskip("ray", reason="ray is not installed: pip install 'sightline-search[scale]'")
pytestmark = pytest.mark.scale
BLOCK = 16


@pytest.fixture(scope="module")
def all_nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.end()


@pytest.fixture
def nodes(all_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Three nodes, and blocks so small that there are many."""
    monkeypatch.setitem(ray._BLOCK, "images", BLOCK)
    all_nodes.fill()
    return all_nodes


@dataclass
class MadeUp:
    """A list of URLs and a folder, with copies of one another and something broken.

    Three blocks, not the first, wait for a URL until `released`: whoever has them is busy until then.
    """

    places: list[Path]
    contents: int
    released: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def made_up(tmp_path: Path) -> Iterator[MadeUp]:
    names = [f"/{'slow' if number in (20, 36, 52) else 'quick'}/{number:02}.png" for number in range(64)]
    place, photos = tmp_path / "pictures.urls", tmp_path / "photos"
    for number, original in enumerate((0, 1, 1, 62, 63)):  # of the first and the last block, whichever comes first
        put(photos / f"copy-{number}.png", picture(original))
    put(photos / "broken.png", b"\x89PNG\r\n\x1a\n and no more")
    found = MadeUp([place, photos], len(names))
    with served({name: picture(number) for number, name in enumerate(names)}, found.released) as address:
        place.write_text("\n".join(address + name for name in names))
        yield found
        found.released.set()


def everything(at: Path) -> dict[str, Any]:
    """All that a collection knows, and all its vectors."""
    with Collection.open(at) as collection:
        tables = {
            table: collection.catalog.connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("roots", "contents", "files")
        }
        ids = np.array(collection.catalog.ids(), dtype=np.int64)
        assert collection.store.ids().tolist() == ids.tolist()
        return tables | {part: collection.store.fetch(ids, part) for part in ("embedding", "fragments", "states")}


def assert_same(at: Path, other: Path) -> None:
    found, expected = everything(at), everything(other)
    for table in ("roots", "contents", "files"):
        assert found[table] == expected[table], table
    for part in ("embedding", "fragments", "states"):
        np.testing.assert_array_equal(found[part].mask, expected[part].mask)
        np.testing.assert_allclose(found[part].values, expected[part].values, atol=1e-5)


def check_as_by_one(places: list[Path], bundle: Path, tmp_path: Path, on_progress: Callable[[int, int], None]) -> None:
    """Index on the cluster and here, and compare all that came of it."""
    on_cluster, here = tmp_path / "cluster", tmp_path / "here"
    report = index(places, at=on_cluster, model=bundle, workers="ray", progress=on_progress)
    local = index(places, at=here, model=bundle)
    assert_same(on_cluster, here)
    for name in ("new", "read", "encoded", "duplicates", "broken", "skipped"):
        assert getattr(report, name) == getattr(local, name), name
    assert report.new >= 4 * BLOCK
    again: Report = index(at=on_cluster, model=bundle, workers="ray")
    assert (again.read, again.unchanged) == (0, report.new)


def test_a_node_lost_midway_costs_nothing(nodes: Nodes, made_up: MadeUp, tiny_bundle: Path, tmp_path: Path) -> None:
    def kill_one(done: int, total: int) -> None:
        deadline = time.monotonic() + 60
        while not made_up.released.is_set():
            assert time.monotonic() < deadline, "no node was busy"
            if nodes.kill_a_busy_one():
                made_up.released.set()
            time.sleep(0.01)

    check_as_by_one(made_up.places, tiny_bundle, tmp_path, kill_one)
    assert made_up.released.is_set()


def test_a_node_lost_among_real_shards_costs_nothing(
    nodes: Nodes, data: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    killed, shard = [], tmp_path / "part-of-coco.tar"
    with tarfile.open(data / "coco-val.tar") as whole, tarfile.open(shard, "w") as part:
        for member in islice(whole, 2 * 300):  # an image and its captions each
            part.addfile(member, whole.extractfile(member))
    os.utime(shard, (10**9, 10**9))  # what was written a moment ago would be read again

    def kill_one(done: int, total: int) -> None:
        deadline = time.monotonic() + 2  # between two blocks, no node may be busy for a moment
        while not killed and done < total and time.monotonic() < deadline:
            if nodes.kill_a_busy_one():
                killed.append(done)
            time.sleep(0.01)

    check_as_by_one([shard], tiny_bundle, tmp_path, kill_one)
    assert killed, "no node was busy"


def test_an_interrupted_run_goes_on(
    nodes: Nodes, made_up: MadeUp, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, then resumed by this process alone, then again by the cluster, which has nothing left to do."""
    monkeypatch.setattr("sightline.collection.indexing.commits._COMMIT_SECONDS", 0.0)
    made_up.released.set()
    at = tmp_path / "at"

    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(IndexingInterrupted):
        index(made_up.places, at=at, model=tiny_bundle, workers="ray", progress=interrupt)
    resumed = index(made_up.places, at=at, model=tiny_bundle)
    assert 0 < resumed.encoded < made_up.contents
    assert len(everything(at)["contents"]) == made_up.contents
    assert index(made_up.places, at=at, model=tiny_bundle, workers="ray").read == 0


def test_what_is_known_is_not_encoded_again(
    nodes: Nodes, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture that was moved is read by a worker, who finds its hash among those that are known."""
    photos = tmp_path / "photos"
    path = put(photos / "a.png", picture(0))
    at = index(photos, model=tiny_bundle).at
    path.rename(photos / "b.png")
    seen = []
    without_known = ray.without_known
    monkeypatch.setattr(ray, "without_known", lambda batch, known: seen.append(batch) or without_known(batch, known))
    report = index(photos, at=at, model=tiny_bundle, workers="ray")
    assert (report.moved, report.encoded) == (1, 0)
    assert [batch.contents for batch in seen] == [[]]


def test_the_fast_graph_encodes_on_nodes_and_so_does_the_full_one_when_refining(
    nodes: Nodes, made_up: MadeUp, quick_bundle: Path, tmp_path: Path
) -> None:
    made_up.released.set()
    at, here, fast = tmp_path / "at", tmp_path / "here", tmp_path / "fast"
    report = index(made_up.places, at=at, model=quick_bundle, workers="ray", quick=True)
    assert report.to_refine == made_up.contents
    index(made_up.places, at=fast, model=quick_bundle, quick=True)
    assert_same(at, fast)
    report = index(at=at, model=quick_bundle, workers="ray", refine=True)
    assert (report.refined, report.to_refine) == (made_up.contents, 0)
    index(made_up.places, at=here, model=quick_bundle)
    assert_same(at, here)
