from pathlib import Path

import numpy as np
import pytest

from sightline import parallel
from sightline.bundle.encoded import Encoded
from sightline.stores import local_search, ranking
from sightline.stores.base import Neighbors, Shape
from sightline.stores.local import LocalStore
from sightline.stores.local_search import Effort


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 vectors, of which every seventh was deleted."""
    at = tmp_path_factory.mktemp("searching") / "store"
    store = LocalStore.open(at, Shape(64), write=True)
    store.add(np.arange(2_000), Encoded(vectors(2_000, 0), np.ones((2_000, 1), dtype=np.bool_)))
    store.delete(np.arange(0, 2_000, 7))
    store.close()
    return at


def found(folder: Path, where: np.ndarray) -> Neighbors:
    """What a store finds that compares but a few candidates."""
    effort = Effort(exact_up_to=0, candidates=10, candidates_per_result=1)
    store = LocalStore.open(folder, Shape(64), write=False, effort=effort)
    answer = store.search(vectors(9, 1), 5, where)
    store.close()
    return answer


@pytest.mark.parametrize("kept", [3, 100, 300])
def test_codes_that_are_picked_out_answer_like_all_codes_under_a_mask(
    folder: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = np.random.default_rng(2).permutation(2_500)[:kept]
    usual = found(folder, where)
    for few in (0, 10**6):  # always picked out, and never
        monkeypatch.setattr(local_search, "_FEW", few)
        for got, wanted in zip(found(folder, where), usual, strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert np.isin(usual.ids, [*where, -1]).all()
    assert not (usual.ids[usual.ids >= 0] % 7 == 0).any()


def test_threads_change_nothing_in_what_is_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = found(folder, np.arange(2_000))
    monkeypatch.setattr(ranking, "_BLOCK", 7)
    monkeypatch.setattr(ranking, "_PIECE", 1)
    monkeypatch.setattr(parallel, "_THREADS", 5)
    for got, wanted in zip(found(folder, np.arange(2_000)), alone, strict=True):
        np.testing.assert_array_equal(got, wanted)
