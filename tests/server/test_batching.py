"""Requests that come in together are encoded together, and nobody notices but the clock."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sightline
from server.samples import application, ask, fill, limits
from sightline.bundle import Bundle
from sightline.bundle.engines import OnnxRuntime
from sightline.bundle.model import Graph
from sightline.collection import Collection
from sightline.server.batcher import Batcher
from sightline.server.current_collection import CurrentCollection
from sightline.server.run import ServedCollection
from sightline.server.shared_model import SharedModel, _rows_are_independent
from sightline.server.worker_pool import BatchedPool, BusyError

TEXTS = ["a dog", "two large birds above the blue water", "snow", "a man with a red ball", "the small cat"] * 4


class Slow:
    """Doubles numbers, a batch at a time, once it is let go; and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.began = threading.Event()

    def __call__(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        self.began.set()
        assert self.go.wait(10)
        if 13 in items:
            raise ValueError("thirteen")
        return [2 * item for item in items]


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_what_comes_in_during_a_run_makes_up_the_next_batch(slow: Slow) -> None:
    batcher = Batcher(slow, most=4, gather_seconds=0.0)
    first = batcher.submit(0)
    assert slow.began.wait(10)
    rest = [batcher.submit(number) for number in range(1, 8)]
    slow.go.set()
    assert [future.result(10) for future in (first, *rest)] == [0, 2, 4, 6, 8, 10, 12, 14]
    batcher.close()
    assert slow.batches == [[0], [1, 2, 3, 4], [5, 6, 7]]


def test_a_lone_item_waits_for_nobody() -> None:
    batcher = Batcher(lambda items: items, most=8, gather_seconds=60.0)
    began = time.monotonic()
    for number in range(5):
        assert batcher.submit(number).result(100) == number
    assert time.monotonic() - began < 30
    batcher.close()


def test_after_a_batch_with_company_others_are_waited_for(slow: Slow) -> None:
    batcher = Batcher(slow, most=3, gather_seconds=60.0)
    batcher.submit(0)
    assert slow.began.wait(10)
    for number in (1, 2, 3):
        batcher.submit(number)
    slow.go.set()
    late = [batcher.submit(4)]
    time.sleep(0.05)
    late += [batcher.submit(5), batcher.submit(6)]
    assert [future.result(100) for future in late] == [8, 10, 12]
    batcher.close()
    assert slow.batches == [[0], [1, 2, 3], [4, 5, 6]]


def test_an_error_reaches_everybody_in_its_batch_and_nobody_else(slow: Slow) -> None:
    batcher = Batcher(slow, most=2, gather_seconds=0.0)
    futures = [batcher.submit(0)]
    assert slow.began.wait(10)
    futures += [batcher.submit(number) for number in (13, 1, 2)]
    slow.go.set()
    assert [type(future.exception(10)) for future in futures] == [type(None), ValueError, ValueError, type(None)]
    batcher.close()


def test_what_was_cancelled_is_not_run_and_closing_runs_the_rest(slow: Slow) -> None:
    batcher = Batcher(slow, most=8, gather_seconds=0.0)
    batcher.submit(0)
    assert slow.began.wait(10)
    dropped, kept = batcher.submit(1), batcher.submit(2)
    assert dropped.cancel()
    slow.go.set()
    batcher.close()
    assert kept.result(0) == 4
    assert slow.batches == [[0], [2]]
    with pytest.raises(RuntimeError):
        batcher.submit(3)


def test_what_is_run_together_is_of_about_the_same_size_and_nobody_waits_for_ever(slow: Slow) -> None:
    batcher = Batcher(slow, most=3, size=lambda number: number)
    batcher.submit(0)
    assert slow.began.wait(10)
    futures = [batcher.submit(number) for number in (50, 1, 52, 2, 90, 51, 3)]
    slow.go.set()
    assert [future.result(10) for future in futures] == [100, 2, 104, 4, 180, 102, 6]
    batcher.close()
    assert slow.batches == [[0], [50, 51, 52], [1, 2, 3], [90]]


def test_only_what_is_of_one_kind_is_run_together(slow: Slow) -> None:
    batcher = Batcher(slow, most=3, kind=lambda number: number % 2)
    batcher.submit(0)
    assert slow.began.wait(10)
    futures = [batcher.submit(number) for number in (1, 2, 3, 4, 5, 6, 7, 8)]
    slow.go.set()
    assert [future.result(10) for future in futures] == [2, 4, 6, 8, 10, 12, 14, 16]
    batcher.close()
    assert slow.batches == [[0], [1, 3, 5], [2, 4, 6], [7], [8]]


def test_several_threads_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(items: list[int]) -> list[int]:
        both.wait()
        return items

    batcher = Batcher(meet, most=1, workers=2)
    assert [future.result(10) for future in [batcher.submit(1), batcher.submit(2)]] == [1, 2]
    batcher.close()


def shared(bundle: Bundle, **changes: Any) -> tuple[SharedModel, list[int]]:
    sizes: list[int] = []
    return SharedModel(bundle, limits(**changes), sizes.append), sizes


def test_texts_of_many_threads_are_encoded_together_and_as_if_alone(bundle: Bundle) -> None:
    model, sizes = shared(bundle, gather_ms=20)
    with ThreadPoolExecutor(len(TEXTS)) as pool:
        found = list(pool.map(lambda text: model.encode_texts([text]), TEXTS))
    model.close()
    assert sum(sizes) == len(TEXTS)
    assert max(sizes) > 1
    for text, own in zip(TEXTS, found, strict=True):
        alone = bundle.encode_texts([text])
        assert own.mask.shape == alone.mask.shape
        assert np.allclose(own.embedding, alone.embedding, atol=1e-5)
        assert alone.fragments is not None
        assert own.fragments is not None
        assert np.allclose(own.fragments, alone.fragments, atol=1e-4)
        assert alone.states is not None
        assert own.states is not None
        assert np.allclose(own.states, alone.states, atol=1e-3)


class Recorder(Bundle):
    """Notes which graphs it is asked to load."""

    asked: ClassVar[list[str]] = []

    def prefer_gpu(self) -> Bundle:
        return self

    def prepare(self, *graphs: Graph, wait: bool = False) -> None:
        self.asked.extend(graphs)


def test_the_graph_of_texts_is_loaded_by_the_encoder_alone(bundle: Bundle) -> None:
    model, _ = shared(Recorder(bundle.folder, bundle.spec, threads=2))
    model.prepare("text", "image", "match")
    model.close()
    assert Recorder.asked == ["image", "match"]


def test_several_texts_of_one_caller_keep_their_order_and_shape(bundle: Bundle) -> None:
    model, _ = shared(bundle)
    found, expected = model.encode_texts(TEXTS[:4]), bundle.encode_texts(TEXTS[:4])
    model.close()
    assert np.array_equal(found.mask, expected.mask)
    assert np.allclose(found.embedding, expected.embedding, atol=1e-5)
    assert found.states is not None
    assert expected.states is not None
    assert np.allclose(found.states[found.mask], expected.states[found.mask], atol=1e-3)


def test_a_model_that_mixes_up_the_texts_of_a_batch_gets_them_one_by_one(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _rows_are_independent(bundle)
    run = OnnxRuntime.run

    def mixed(engine: OnnxRuntime, inputs: dict[str, Any]) -> dict[str, Any]:
        found = run(engine, inputs)
        return {**found, "embedding": found["embedding"] + 0.01 * (len(found["embedding"]) - 1)}

    monkeypatch.setattr(OnnxRuntime, "run", mixed)
    model, sizes = shared(bundle, gather_ms=20)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: model.encode_texts([text]), TEXTS))
    model.close()
    assert set(sizes) == {1}


def test_searches_of_many_threads_find_what_each_finds_alone(opened: ServedCollection, collection: Collection) -> None:
    app = application(opened)
    queries = [(text, rerank) for text in set(TEXTS) for rerank in (0, 5)]

    def asked(query: tuple[str, int]) -> list[int]:
        answer = ask(app, "GET", "/v1/search", params={"q": query[0], "rerank": query[1], "k": 4})
        return [hit["id"] for hit in answer.json()["hits"]]

    with ThreadPoolExecutor(len(queries)) as pool:
        found = list(pool.map(asked, queries))
    assert found == [[hit.id for hit in collection.search(text, rerank=rerank, k=4)] for text, rerank in queries]


def test_plain_searches_that_wait_together_are_made_together(
    opened: ServedCollection, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[str]] = []
    search = Collection.search_together

    def noted(own: Collection, texts: list[str], **options: Any) -> Any:
        batches.append(texts)
        time.sleep(0.1)  # until all others wait
        return search(own, texts, **options)

    monkeypatch.setattr(Collection, "search_together", noted)
    app = application(opened)
    asked = [(text, k) for text in set(TEXTS) for k in (2, 3)]

    def found(text: str, k: int) -> list[tuple[int, float]]:
        hits = ask(app, "GET", "/v1/search", params={"q": text, "k": k, "rerank": 0}).json()["hits"]
        return [(hit["id"], hit["score"]) for hit in hits]

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda query: found(*query), asked))
    assert sum(map(len, batches)) == len(asked)
    assert max(map(len, batches)) > 1
    assert all(len(set(texts)) == len(texts) for texts in batches)  # a text is asked once for each k
    for (text, k), answer in zip(asked, answers, strict=True):
        expected = collection.search(text, k=k, rerank=0)
        assert [id for id, _ in answer] == [hit.id for hit in expected]
        assert [score for _, score in answer] == pytest.approx([hit.score for hit in expected], abs=2e-6)


@pytest.mark.parametrize("more", [{"not": "snow"}, {"where": "width > 0"}, {"budget_ms": 500}, {"late": 3}])
def test_whatever_asks_for_more_than_words_is_searched_for_alone(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(Collection, "search_together", None)
    answer = ask(application(opened), "GET", "/v1/search", params={"q": "a dog", "rerank": 0, **more})
    assert answer.status_code == 200
    assert answer.json()["hits"]


def test_an_error_of_a_plain_search_is_answered_as_a_problem(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise sightline.errors.StoreError("the disk is gone")

    monkeypatch.setattr(Collection, "search_together", broken)
    answer = ask(application(opened), "GET", "/v1/search?q=a dog&rerank=0")
    assert answer.status_code >= 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_shared_lane_has_an_end_and_drops_what_nobody_waits_for(slow: Slow) -> None:
    pool = BatchedPool(Batcher(slow, most=1), waiting=2)

    async def scene() -> None:
        first = asyncio.create_task(pool.run(1))
        await asyncio.to_thread(slow.began.wait, 10)
        gone = asyncio.create_task(pool.run(2))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await pool.run(3)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        last = asyncio.create_task(pool.run(4))
        await asyncio.sleep(0)
        slow.go.set()
        assert [await first, await last] == [2, 8]

    asyncio.run(scene())
    pool.close()
    assert slow.batches == [[1], [4]]
    with pytest.raises(BusyError):
        asyncio.run(pool.run(5))


def test_queries_without_a_rerank_overtake_those_with_one(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(opened)
    free, began = threading.Event(), threading.Event()
    match = Bundle.match

    def stuck(own: Bundle, *arguments: Any) -> Any:
        began.set()
        assert free.wait(20)
        return match(own, *arguments)

    monkeypatch.setattr(Bundle, "match", stuck)
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(ask, app, "GET", "/v1/search?q=a dog") for _ in range(4)]
        assert began.wait(10)
        for path in ("/v1/search?q=a dog&rerank=0", "/v1/items/1/similar", "/v1/items/1/thumbnail"):
            assert ask(app, "GET", path).status_code == 200
        assert ask(app, "POST", "/v1/embed", json={"texts": ["a dog"]}).status_code == 200
        assert not any(future.done() for future in slow)
        free.set()
        assert [future.result(20).status_code for future in slow] == [200] * 4


def test_a_collection_that_changes_is_shown_anew_and_searches_finish_with_the_old(
    tmp_path: Path, tiny_bundle: Path
) -> None:
    photos = fill(tmp_path / "photos", 2)
    at = sightline.index(photos, model=tiny_bundle).at
    current = CurrentCollection(at, Bundle.open(tiny_bundle))
    assert not current.renew()
    with current.use() as old:
        fill(photos, 4)
        sightline.index(photos, model=tiny_bundle)
        assert current.renew()
        with current.use() as new:
            assert len(new.store.ids()) == 4
        assert len(old.search("a dog", k=9, duplicates="show")) == 2
    with pytest.raises(sightline.errors.StoreError):
        old.store.ids()
    assert not current.renew()
    current.close()


def test_a_collection_that_was_made_anew_by_another_model_changes_nothing(tmp_path: Path, tiny_bundle: Path) -> None:
    import json
    import os

    photos = fill(tmp_path / "photos", 2)
    at = sightline.index(photos, model=tiny_bundle).at
    current = CurrentCollection(at, Bundle.open(tiny_bundle))
    manifest = json.loads((at / "manifest.json").read_text())
    for name in ("manifest.json", "manifest-copy.json"):
        (at / name).write_text(json.dumps({**manifest, "sha256": "0" * 64, "checksum": ""}))
    os.utime(at / "vectors" / "head.json", ns=(1, 1))
    with pytest.raises(sightline.CollectionError, match="indexed with the model"):
        current.renew()
    with current.use() as collection:
        assert len(collection.search("a dog", k=2, duplicates="show")) == 2
    current.close()
