"""Late interaction as a stage: of some items or of all, the same scores, within filters, in little memory."""

import dataclasses
import signal
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval.made_up import DIM, PIXEL, MadeUp, store_of, unit, units
from retrieval.slow_reference import maxsim
from sightline.bundle.encoded import Encoded
from sightline.errors import ModelError, QueryError
from sightline.retrieval import late as stage
from sightline.retrieval.cascade import Cascade, Ranking
from sightline.retrieval.costs import Costs
from sightline.retrieval.first_stage import Scope
from sightline.retrieval.late import LateScorer, rank_all
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import EncodedQuery
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

ITEMS = 150


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even the few items of a test are read in many parts."""
    monkeypatch.setattr(stage, "_AT_ONCE", 7)


@pytest.fixture
def model() -> MadeUp:
    words = {"dog": unit(1), "snow": unit(0, 1), "cat": unit(0, 0, 1)}
    return MadeUp(vectors=words, logits=np.random.default_rng(0).normal(0, 3, ITEMS), picture=unit(0, 0, 0, 1))


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = store_of(tmp_path / "store", units(np.random.default_rng(1), ITEMS, DIM))
    yield store
    store.close()


def run(
    model: MadeUp,
    store: LocalStore,
    late: Any,
    kind: Any = "images",
    asked: Any = None,
    k: int = 12,
    rerank: int = 0,
    first: int | None = None,
    **scope: Any,
) -> Ranking:
    changes = {"k": k, "late": late, "rerank": rerank, "late_fragments": first}
    asked = dataclasses.replace(asked or SearchOptions("dog"), **changes)
    return Cascade(model, store, kind, Costs(model.name), model.clock).run(asked, Scope(**scope))


def ragged(rng: np.random.Generator, count: int, longest: int = 5, dim: int = 6) -> Encoded:
    mask = np.arange(longest) < rng.integers(1, longest + 1, count)[:, None]
    return Encoded(units(rng, count, DIM), mask, units(rng, count, longest, dim))


@pytest.mark.parametrize("first", [None, 1, 2, 9])
def test_scores_are_those_of_the_fragments_as_they_are_fetched(tmp_path: Path, first: int | None) -> None:
    """In both directions, also where only the first fragments of either side count, and in any order of ids."""
    rng = np.random.default_rng(2)
    store = LocalStore.open(tmp_path / "s", Shape(DIM, 6), write=True)
    store.add(np.arange(40), ragged(rng, 40))
    own = ragged(rng, 1)
    ids = rng.permutation(40)[:25]
    stored = store.fetch(ids, "fragments")
    values, mask = stored.values[:, :first], stored.mask[:, :first]
    assert own.fragments is not None
    words = own.fragments[0][own.mask[0]][:first]
    images = [maxsim(words, item[real]) for item, real in zip(values, mask, strict=True)]
    texts = [maxsim(item[real], words) for item, real in zip(values, mask, strict=True)]
    np.testing.assert_allclose(LateScorer(store, own, "images", first).scores(ids), images, rtol=1e-5)
    np.testing.assert_allclose(LateScorer(store, own, "texts", first).scores(ids), texts, rtol=1e-5)
    assert LateScorer(store, own, "images", first).scores(ids[:0]).shape == (0,)
    store.close()


ASKED: dict[str, tuple[Any, dict[str, Any]]] = {
    "words": (SearchOptions("dog"), {}),
    "within a filter": (SearchOptions("dog"), {"allowed": np.arange(3, ITEMS, 3)}),
    "within a filter that lets nothing through": (SearchOptions("dog"), {"allowed": np.empty(0, np.int64)}),
    "a filter that names what is gone": (SearchOptions("dog"), {"allowed": np.array([5, 9, 10_000])}),
    "but not": (SearchOptions("dog", not_=("snow", "cat")), {}),
    "but not, within a filter": (SearchOptions("dog", not_="snow"), {"allowed": np.arange(0, ITEMS, 2)}),
    "words and a picture": (SearchOptions("dog", PIXEL, 0.7), {}),
    "words and a picture, but not": (SearchOptions("dog", PIXEL, 0.3, "snow"), {}),
    "some deleted meanwhile": (SearchOptions("dog"), {"exists": lambda ids: {id for id in ids if id % 4}}),
    "more than there are": (SearchOptions("dog"), {"k": ITEMS + 9}),
    "and matched": (SearchOptions("dog"), {"rerank": 9}),
    "the first fragment": (SearchOptions("dog"), {"first": 1}),
}


@pytest.mark.parametrize("case", ASKED)
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_ranking_all_is_rescoring_as_many_as_there_are(model: MadeUp, store: LocalStore, case: str, kind: str) -> None:
    asked, options = ASKED[case]
    if kind == "texts":
        asked = SearchOptions(None, PIXEL) if asked.image is None or not asked.text else asked
    if options.get("rerank"):
        few = run(model, store, ITEMS, kind, asked, **{**options, "rerank": 0}).candidates.ids[:9]
    everything = run(model, store, "all", kind, asked, **options).candidates
    some = run(model, store, ITEMS, kind, asked, **{**options, "k": ITEMS}).candidates
    count = len(everything)
    assert count == min(options.get("k", 12), len(some))
    assert everything.ids.tolist() == some.ids[:count].tolist()
    for name in ("scores", "fit", "embed", "beside", "penalty"):
        np.testing.assert_allclose(getattr(everything, name), getattr(some, name)[:count], atol=1e-5, err_msg=name)
    assert everything.stages == some.stages[:count]
    assert {id: everything.folded.get(id) for id in everything.ids.tolist()} == {
        id: some.folded.get(id) for id in some.ids[:count].tolist()
    }
    if options.get("rerank"):
        assert everything.stages[:9] == ("match",) * 9
        assert set(everything.ids[:9].tolist()) == set(few.tolist())


def test_ranking_all_is_scoring_everything_at_once(model: MadeUp, store: LocalStore) -> None:
    found = run(model, store, "all", k=ITEMS).candidates
    stored, text = store.fetch(np.arange(ITEMS), "fragments"), model.encode_texts(["dog"])
    assert text.fragments is not None
    words = text.fragments[0][text.mask[0]]
    scores = np.array([maxsim(words, item[real]) for item, real in zip(stored.values, stored.mask, strict=True)])
    assert found.ids.tolist() == np.argsort(-scores, kind="stable").tolist()
    np.testing.assert_allclose(found.scores, np.sort(scores)[::-1], atol=1e-6)
    assert found.stages == ("late",) * ITEMS


def test_the_best_is_found_however_low_its_embedding_ranks(model: MadeUp, store: LocalStore) -> None:
    best = int(run(model, store, "all", k=1).candidates.ids[0])
    text = model.encode_texts(["dog"])
    worst = Encoded(-unit(1)[None], text.mask, text.fragments, np.zeros((1, 2, 4), np.float32))
    store.add(np.array([ITEMS]), worst)
    assert best != ITEMS
    assert run(model, store, "all", k=1).candidates.ids.tolist() == [ITEMS]
    assert run(model, store, 20, k=1).candidates.ids.tolist() != [ITEMS]


def test_equal_scores_are_in_the_order_of_ids(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path / "s", Shape(DIM, 3), write=True)
    rng = np.random.default_rng(3)
    same = np.repeat(units(rng, 1, 2, 3), 30, axis=0)
    store.add(rng.permutation(30), Encoded(units(rng, 30, DIM), np.ones((30, 2), dtype=np.bool_), same))
    model = MadeUp(vectors={"dog": unit(1)}, abilities=frozenset({"embed", "fragments"}))
    assert run(model, store, "all", k=30).candidates.ids.tolist() == list(range(30))
    store.close()


def test_copies_are_folded_until_there_are_enough(tmp_path: Path) -> None:
    """Twenty copies of the best, and twenty others: ten different pictures are found all the same."""
    rng = np.random.default_rng(4)
    store = LocalStore.open(tmp_path / "s", Shape(DIM, 3), write=True)
    fragments = units(rng, 40, 2, 3)
    model = MadeUp(vectors={"dog": unit(1)}, abilities=frozenset({"embed", "fragments"}))
    own = model.encode_texts(["dog"]).fragments
    assert own is not None
    embeddings = np.concatenate([np.repeat(unit(1)[None], 20, axis=0), units(rng, 20, DIM)])
    fragments[:20] = own[0]
    store.add(np.arange(40), Encoded(embeddings, np.ones((40, 2), dtype=np.bool_), fragments))
    found = run(model, store, "all", k=10, fold=True).candidates
    assert found.folded[0] == tuple(range(1, 20))
    assert len(found) == 10
    store.close()


@pytest.mark.parametrize("threads", [1, 5])
def test_the_answer_does_not_depend_on_the_number_of_threads(
    model: MadeUp, store: LocalStore, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(model, store, "all", k=ITEMS).candidates
    monkeypatch.setattr(stage, "usable_cpus", lambda: threads)
    after = run(model, store, "all", k=ITEMS).candidates
    assert before.ids.tolist() == after.ids.tolist()
    assert before.scores.tolist() == after.scores.tolist()


def test_memory_is_bounded_however_many_items_there_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    count, patches, dim = 2_000, 30, 64
    store = LocalStore.open(tmp_path / "s", Shape(DIM, dim), write=True)
    masks = np.ones((count, patches), dtype=np.bool_)
    store.add(np.arange(count), Encoded(units(rng, count, DIM), masks, units(rng, count, patches, dim)))
    store.flush()
    text = Encoded(units(rng, 1, DIM), np.ones((1, 8), dtype=np.bool_), units(rng, 1, 8, dim))
    asked = EncodedQuery(text.embedding[0], text, None, np.empty((0, DIM), np.float32))
    tracemalloc.start()
    rank_all(LateScorer(store, text, "images"), asked, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < count * patches * dim / 2  # all of it would be as many bytes as int8, and four times that as float32
    store.close()


def test_ctrl_c_ends_it_at_once(model: MadeUp, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    main = threading.main_thread().ident
    assert main is not None

    def slow(late: LateScorer, ids: np.ndarray) -> np.ndarray:
        judged.append(len(ids))
        if len(judged) == 3:
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.05)
        return np.zeros(len(ids), np.float32)

    monkeypatch.setattr(LateScorer, "scores", slow)
    monkeypatch.setattr(stage, "usable_cpus", lambda: 2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, shells have it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            run(model, store, "all")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(judged) < ITEMS // 7
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sightline-late")]


def test_what_cannot_be_ranked_by_late_interaction_is_refused(model: MadeUp, store: LocalStore) -> None:
    with pytest.raises(QueryError, match="late cannot be 'all' with a time limit"):
        SearchOptions("dog", late="all", budget_ms=50)
    model.abilities = frozenset({"embed"})
    with pytest.raises(ModelError, match="fragments"):
        run(model, store, "all")


def test_embeddings_rank_where_nothing_can_interact(model: MadeUp, store: LocalStore, tmp_path: Path) -> None:
    """A picture among pictures, and a store that keeps no fragments."""
    assert set(run(model, store, "all", asked=SearchOptions(None, PIXEL)).candidates.stages) == {"embed"}
    bare = store_of(tmp_path / "bare", units(np.random.default_rng(6), 20, DIM), Shape(DIM))
    assert set(run(model, bare, "all").candidates.stages) == {"embed"}
    bare.close()


def test_an_empty_store_has_nothing_to_rank(model: MadeUp, tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path / "empty", Shape(DIM, 3, 4), write=True)
    assert len(run(model, store, "all").candidates) == 0
    store.close()
