"""The first stage finds exactly the best, whatever is unwanted, folded, filtered or gone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.made_up import DIM, MadeUp, encoded, store_of, unit, units
from sightline.retrieval.first_stage import Scope, retrieve, retrieve_together
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import EncodedQuery, encode
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore


def asked(vector: np.ndarray, *without: np.ndarray) -> EncodedQuery:
    rows = np.array(without, np.float32).reshape(len(without), DIM)
    return EncodedQuery(vector, encoded(vector[None]), None, rows)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 30), unwanted=st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_the_best_are_those_that_a_look_at_everything_finds(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, unwanted: int
) -> None:
    rng = np.random.default_rng(seed)
    store = store_of(tmp_path_factory.mktemp("store"), units(rng, 200, DIM))
    query, without = units(rng, DIM), units(rng, unwanted, DIM)
    found = retrieve(store, asked(query, *without), n)
    embeddings = store.fetch(np.arange(200), "embedding").values[:, 0].astype(np.float64)
    shown = embeddings @ without.T.astype(np.float64)
    expected = embeddings @ query - np.maximum(0, shown - np.median(shown, axis=0)).sum(axis=1)
    np.testing.assert_allclose(found.scores, np.sort(expected)[::-1][:n], atol=1e-5)
    np.testing.assert_allclose(found.scores, expected[found.ids], atol=1e-5)
    store.close()


@given(seed=st.integers(0, 10_000), n=st.integers(1, 30), questions=st.integers(1, 9), fold=st.booleans())
@settings(max_examples=25, deadline=None)
def test_questions_asked_together_find_what_each_finds_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, questions: int, fold: bool
) -> None:
    rng = np.random.default_rng(seed)
    vectors = np.repeat(units(rng, 40, DIM), 5, axis=0)  # so many copies that more must be looked at
    store = store_of(tmp_path_factory.mktemp("store"), vectors, Shape(DIM))
    gone, told = set(rng.integers(0, 200, 20).tolist()), []

    def exists(ids: Sequence[int]) -> set[int]:
        told.append(ids)
        return set(ids) - gone

    every = [asked(vector) for vector in units(rng, questions, DIM)]
    together = retrieve_together(store, every, n, Scope(exists=exists, fold=fold))
    for one, found in zip(every, together, strict=True):
        alone = retrieve(store, one, n, Scope(exists=exists, fold=fold))
        assert found.ids.tolist() == alone.ids.tolist()
        assert found.folded == alone.folded
        np.testing.assert_allclose(found.scores, alone.scores, atol=1e-6)
    store.close()


def test_what_is_not_wanted_goes_down_and_nothing_goes_up(tmp_path: Path) -> None:
    dog, snowy_dog, snow, nothing = unit(1), unit(1, 1), unit(0, 1), unit(0, 0, 1)
    store = store_of(tmp_path / "s", np.stack([snowy_dog, dog, snow, nothing, nothing, nothing]))
    plain, without = (retrieve(store, asked(unit(1, 0.2), *some), 6) for some in ([], [unit(0, 1)]))
    assert plain.ids[:2].tolist() == [1, 0]
    assert (without.ids[0], without.scores[0]) == (1, pytest.approx(plain.scores[0]))
    before, after = (dict(zip(f.ids.tolist(), f.scores.tolist(), strict=True)) for f in (plain, without))
    assert all(after[id] <= before[id] + 1e-9 for id in range(6))
    assert after[0] < before[0] - 0.5
    store.close()


def test_enough_different_pictures_are_found_behind_many_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    copies = unit(1)[None] + 0.001 * units(rng, 300, DIM)
    others = unit(1)[None] + 0.6 * units(rng, 5, DIM)
    shape = Shape(DIM)
    vectors = np.concatenate([copies, others])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    store = store_of(tmp_path / "s", vectors, shape)
    found = retrieve(store, asked(unit(1)), 4, Scope(fold=True))
    assert found.ids[0] < 300
    assert (found.ids[1:] >= 300).all()
    assert len(found) == 4
    assert len(found.folded[int(found.ids[0])]) == 299
    assert len(retrieve(store, asked(unit(1)), 10, Scope(fold=True))) == 6
    store.close()


def test_pictures_that_only_seem_alike_are_not_folded(tmp_path: Path) -> None:
    """Their embeddings are the same; their patches decide."""
    store = LocalStore.open(tmp_path / "s", Shape(DIM, 3, 4), write=True)
    items = encoded(np.repeat(unit(1)[None], 3, axis=0))
    items.states[:] = [[[1, 0, 0, 0], [0, 1, 0, 0]], [[1, 0.1, 0, 0], [0, 1, 0.1, 0]], [[0, 1, 0, 0], [1, 0, 0, 0]]]
    store.add(np.arange(3), items)
    found = retrieve(store, asked(unit(1)), 3, Scope(fold=True))
    assert found.ids.tolist() == [0, 2]
    assert found.folded == {0: (1,)}
    store.close()


def test_only_what_is_allowed_and_still_there_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    store = store_of(tmp_path / "s", units(rng, 50, DIM))
    query = units(rng, DIM)
    allowed = np.arange(0, 50, 2)
    gone = {int(id) for id in retrieve(store, asked(query), 3, Scope(allowed=allowed)).ids}
    found = retrieve(store, asked(query), 3, Scope(allowed=allowed, exists=lambda ids: set(ids) - gone))
    assert not gone & set(found.ids.tolist())
    assert (found.ids % 2 == 0).all()
    store.close()


def test_deleted_items_do_not_cost_results(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    store = store_of(tmp_path / "s", units(rng, 60, DIM))
    query = units(rng, DIM)
    best = retrieve(store, asked(query), 40).ids.tolist()
    found = retrieve(store, asked(query), 5, Scope(exists=lambda ids: set(ids) & set(best[30:])))
    assert found.ids.tolist() == best[30:35]
    store.close()


@pytest.mark.parametrize("fold", [True, False])
def test_nothing_is_found_in_an_empty_store(tmp_path: Path, fold: bool) -> None:
    store = store_of(tmp_path / "s", np.empty((0, DIM)))
    assert len(retrieve(store, asked(unit(1), unit(0, 1)), 5, Scope(fold=fold))) == 0
    store.close()


def test_words_and_a_picture_are_weighed_against_each_other(tmp_path: Path) -> None:
    from retrieval.made_up import PIXEL

    model = MadeUp(vectors={"snow": unit(0, 1)}, picture=unit(1))
    store = store_of(tmp_path / "s", np.stack([unit(1), unit(0, 1), unit(1, 1)]))
    best = {}
    for weight in (0, 0.1, 0.5, 0.9, 1):
        found = encode(SearchOptions("snow", PIXEL, weight).query, model, "images")
        assert np.linalg.norm(found.vector) == pytest.approx(1, abs=1e-6)
        best[weight] = int(retrieve(store, found, 1).ids[0])
    assert best == {0: 1, 0.1: 1, 0.5: 2, 0.9: 0, 1: 0}
    store.close()


@pytest.mark.parametrize("fold", [False, True])
def test_blank_items_come_last_and_take_no_place_of_others(tmp_path: Path, fold: bool) -> None:
    store = store_of(tmp_path, units(np.random.default_rng(8), 300, DIM))
    query = asked(unit(1, 0.3))
    every = retrieve(store, query, 300, Scope(fold=fold)).ids.tolist()
    blank = set(every[:40])
    found = retrieve(store, query, 10, Scope(fold=fold, blank=lambda ids: blank.intersection(ids)))
    assert found.ids.tolist() == [id for id in every if id not in blank][:10]
    together = retrieve_together(store, [query], 10, Scope(fold=fold, blank=lambda ids: blank.intersection(ids)))[0]
    assert together.ids.tolist() == found.ids.tolist()
    whole = retrieve(store, query, 300, Scope(fold=fold, blank=lambda ids: blank.intersection(ids))).ids.tolist()
    assert whole == [id for id in every if id not in blank] + [id for id in every if id in blank]
