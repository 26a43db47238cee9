import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.stores import float16_scan, ranking
from sightline.stores.float16_scan import best_places, is_worthwhile
from sightline.stores.ranking import top_k_rows


@pytest.fixture(params=["faiss", "numpy"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compare vectors with either library; the results must be the same."""
    monkeypatch.setattr(ranking, "is_worthwhile", lambda vectors: request.param == "faiss")
    return str(request.param)


def halves(count: int, dim: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def singles(count: int, dim: int, seed: int = 1) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_query_scores_the_same_alone_among_others_and_over_other_rows() -> None:
    embeddings, queries, ids = halves(2000, 509), singles(70, 509), np.arange(2000)
    together = top_k_rows(embeddings, ids, ids, queries, 30)
    for number in range(0, 70, 9):
        alone = top_k_rows(embeddings, ids, ids, queries[number : number + 1], 30)
        np.testing.assert_array_equal(alone.ids[0], together.ids[number])
        np.testing.assert_array_equal(alone.scores[0], together.scores[number])
        few = top_k_rows(embeddings, ids, np.sort(alone.ids[0]), queries[number : number + 1], 30)
        np.testing.assert_array_equal(few.scores[0], alone.scores[0])


def test_equal_vectors_have_equal_scores_wherever_they_stand() -> None:
    embeddings = np.repeat(halves(1, 509), 1537, axis=0)
    ids = np.random.default_rng(0).permutation(1537)
    found = top_k_rows(embeddings, ids, np.arange(1537), singles(3, 509), 1537)
    assert all(len(np.unique(scores)) == 1 for scores in found.scores)
    assert (found.ids == np.arange(1537)).all()


def test_the_last_digits_of_a_matrix_product_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "is_worthwhile", lambda vectors: False)
    embeddings, queries = np.repeat(halves(40, 64), 30, axis=0), singles(5, 64)
    ids = np.random.default_rng(0).permutation(len(embeddings))
    rows = np.arange(len(embeddings))
    right = top_k_rows(embeddings, ids, rows, queries, 17)
    products = ranking._products
    noise = np.random.default_rng(1).uniform(-4e-6, 4e-6, (5, len(embeddings))).astype(np.float32)
    monkeypatch.setattr(ranking, "_products", lambda *arguments: products(*arguments) + noise)
    for got, wanted in zip(top_k_rows(embeddings, ids, rows, queries, 17), right, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_many_queries_are_taken_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, queries, ids = halves(300, 16), singles(50, 16), np.arange(300)
    right = top_k_rows(embeddings, ids, ids, queries, 4)
    monkeypatch.setattr(ranking, "_SCORES", 700)
    for got, wanted in zip(top_k_rows(embeddings, ids, ids, queries, 4), right, strict=True):
        np.testing.assert_array_equal(got, wanted)
    by_hand = queries.astype(np.float64) @ embeddings.astype(np.float64).T
    np.testing.assert_array_equal(right.ids, np.argsort(-by_hand, axis=1)[:, :4])


@given(count=st.integers(2, 300), dim=st.sampled_from([3, 16, 509]), seed=st.integers(0, 99), data=st.data())
def test_the_best_places_are_those_of_an_exact_comparison(count: int, dim: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, count - 1))
    vectors, (query,) = halves(count, dim, seed), singles(1, dim, seed + 1)
    exact = vectors.astype(np.float64) @ query.astype(np.float64)
    places = best_places(vectors, query, k)
    if places is not None:
        assert (np.sort(places) == places).all()
        assert set(np.argsort(-exact)[:k]) <= set(places)
        assert exact[places].min() >= np.sort(exact)[-k] - 2e-5


def test_pieces_do_not_change_the_best_places(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, (query,) = halves(1000, 48), singles(1, 48)
    whole = best_places(vectors, query, 12)
    monkeypatch.setattr(float16_scan, "_PIECE", 97)
    monkeypatch.setattr(float16_scan, "usable_cpus", lambda: 64)
    np.testing.assert_array_equal(best_places(vectors, query, 12), whole)


def test_more_equal_vectors_than_asked_for_are_left_to_the_product() -> None:
    vectors = np.repeat(halves(1, 16), 100, axis=0)
    assert best_places(vectors, singles(1, 16)[0], 10) is None
    assert best_places(vectors, singles(1, 16)[0], 90) is not None


def test_faiss_is_imported_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float16_scan, "_compared", 0)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    assert [is_worthwhile(10_000) for _ in range(32)] == [False] * 30 + [True] * 2
    monkeypatch.setattr(float16_scan, "_compared", 0)
    monkeypatch.setitem(sys.modules, "faiss", float16_scan)
    assert is_worthwhile(1)


def test_faiss_starts_no_threads_of_its_own_and_searches_after_a_fork() -> None:
    code = """
import faiss, os, numpy as np, threading
from sightline.stores.float16_scan import best_places
vectors = np.eye(64, dtype=np.float16)
before = faiss.omp_get_max_threads()
def search():
    return best_places(vectors, np.ones(64, dtype=np.float32), 3)
search()
assert faiss.omp_get_max_threads() == before
threads = len(os.listdir("/proc/self/task"))
child = os.fork()
if not child:
    search()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(threads)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "7", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 7
