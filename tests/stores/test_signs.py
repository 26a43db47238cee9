import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline import parallel
from sightline.stores import sign_codes as sign_codes_module
from sightline.stores.sign_codes import code_bytes, nearest_codes, sign_codes

DIMS = st.sampled_from([1, 7, 64, 65, 128, 200, 384, 512, 768])


def vectors(seed: int, count: int, dim: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


def by_hand(stored: np.ndarray, query: np.ndarray, want: int, allowed: np.ndarray) -> list[int]:
    """Rows that differ from the query in no more signs than the `want`-th nearest of the allowed does."""
    differences = ((stored > 0) != (query > 0)).sum(axis=1)
    among = np.sort(differences[allowed])
    limit = among[min(want, len(among)) - 1] if len(among) else -1
    return [row for row in range(len(stored)) if allowed[row] and differences[row] <= limit]


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(0, 80) | st.integers(81, 300),
    dim=DIMS,
    want=st.integers(1, 100),
    share=st.floats(0, 1),
)
@pytest.mark.parametrize("sample", [12, 10**6])
def test_the_nearest_codes_are_those_that_differ_in_the_fewest_signs(
    sample: int, seed: int, count: int, dim: int, want: int, share: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sign_codes_module, "_SAMPLE", sample)
        check_nearest(seed, count, dim, want, share)


def check_nearest(seed: int, count: int, dim: int, want: int, share: float) -> None:
    stored, query = vectors(seed, count, dim), vectors(seed + 1, 1, dim)
    allowed = np.random.default_rng(seed).random(count) < share
    codes, code = sign_codes(stored), sign_codes(query)[0]
    assert codes.shape == (count, code_bytes(dim))
    everything = np.ones(count, dtype=np.bool_)
    assert nearest_codes(codes, code, want).tolist() == by_hand(stored, query, want, everything)
    assert nearest_codes(codes, code, want, allowed).tolist() == by_hand(stored, query, want, allowed)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, code = sign_codes(vectors(0, 5003, 64)), sign_codes(vectors(1, 1, 64))[0]
    allowed = np.random.default_rng(2).random(5003) < 0.5
    alone = nearest_codes(codes, code, 300, allowed)
    monkeypatch.setattr(sign_codes_module, "_PIECE", 300)
    monkeypatch.setattr(parallel, "_THREADS", 7)
    np.testing.assert_array_equal(nearest_codes(codes, code, 300, allowed), alone)
    assert len(alone) >= 300


@pytest.mark.parametrize("sampled", [1.0, -1.0])
def test_a_sample_that_misleads_costs_time_but_no_results(sampled: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_codes_module, "_SAMPLE", 50)
    query, stored = np.ones((1, 64), dtype=np.float32), vectors(0, 1000, 64)
    stored[::20] = sampled  # just those by which the limit is guessed: all like the query, or none
    found = nearest_codes(sign_codes(stored), sign_codes(query)[0], 300)
    assert found.tolist() == by_hand(stored, query, 300, np.ones(1000, dtype=np.bool_))


def test_the_code_of_a_vector_depends_on_that_vector_alone() -> None:
    some = vectors(0, 50, 100)
    np.testing.assert_array_equal(sign_codes(some)[10:20], sign_codes(some[10:20]))
