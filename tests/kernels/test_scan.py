"""A scan finds what comparing everything finds: on a GPU where there is one, else in plain torch and interpreted."""

import json
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from sightline.errors import ModelError
from sightline.kernels.scan import BATCHES, Scan
from sightline.kernels.scan_near import Near
from sightline.stores.ranking import top_k_rows

HAS_GPU = torch.cuda.is_available()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_GPU, reason="there is no GPU"))]
DTYPES = ["float16", "int8"]
SHAPES = [(300, 64, 5), (129, 40, 1), (64, 130, 17), (1, 16, 2)]
KINDS = ["scattered", "in a heap", "few and equal"]

INTERPRETED = """
import json, sys, warnings
warnings.simplefilter("ignore")
from itertools import product
import torch
from sightline.kernels import scan, scan_ends, scan_fused, scan_plain
from kernels.test_scan import SHAPES, case
errors, are_exact = [], []
for rows, dim, batch in SHAPES:
    vectors, queries, allowed = (torch.from_numpy(part) for part in case("scattered", rows, dim, batch))
    for cut in (scan_plain.Cut(32, 64, 64, 4, 2), scan_plain.Cut(16, 64, 32, 4, 2)):
        groups = torch.randint(0, -(-rows // cut.each), (batch, 3))
        found = [way.exact_scores(queries, vectors, allowed, groups, cut.each) for way in (scan_plain, scan_fused)]
        are_exact.append(torch.equal(*found))
        for stored, asked in (
            (scan_plain.Rounded(vectors), scan_plain.Rounded(queries.half())),
            (scan_plain.in_one_digit(vectors), scan_plain.in_two_digits(queries)),
        ):
            plain, fused = (way.group_scores(asked, stored, allowed, cut) for way in (scan_plain, scan_fused))
            errors.append(float((plain - fused).nan_to_num(0).abs().max()))
            are_exact.append(torch.equal(plain.isneginf(), fused.isneginf()))
    for is_whole in (False, True):
        plain, fused = (way.quantize_queries(queries, is_whole, 0.25) for way in (scan_plain, scan_fused))
        off = (plain[0].restored() - fused[0].restored()).abs().amax(dim=1)
        errors.append(float((off - 1.01 * plain[0].worth if is_whole else off).max()))  # one step up or down
        errors.append(float((plain[1] - fused[1]).abs().max()))
        are_exact.append(plain[0].values.dtype == fused[0].values.dtype)
best, groups, slack = torch.topk(torch.rand(3, 80), 7), torch.topk(torch.rand(3, 9), 5, sorted=False), torch.rand(3)
for scan_ends._AT_ONCE, *are_all in product((4, 1024), (False, True), (False, True)):
    packed = [way.pack_results(best, groups, slack, 16, are_all) for way in (scan_plain, scan_fused)]
    are_exact.append(torch.equal(*packed))
vectors, queries, allowed = case("in a heap", 500, 64, 3)
plain = scan.FolderScan(vectors, "int8", device="cpu").search(queries, 5, allowed)
scan._kernels = lambda device: scan_fused
fused = scan.FolderScan(vectors, "int8", device="cpu").search(queries, 5, allowed)
print(json.dumps([max(errors), all(are_exact), all((a == b).all() for a, b in zip(plain, fused))], default=bool))
"""


def case(kind: str, rows: int, dim: int, batch: int) -> tuple[Any, Any, Any]:
    """Vectors as a store keeps them, queries, and the rows that are allowed: most of them, but not the best ones."""
    rng = np.random.default_rng([rows, dim, batch])
    vectors, queries = (rng.standard_normal((count, dim)) for count in (rows, batch))
    if kind == "in a heap":  # so near to one another that rounding disturbs their order
        vectors = queries[0] + 0.004 * vectors
    if kind == "few and equal":
        vectors = vectors[rng.integers(0, 3, rows) % rows]
    vectors, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (vectors, queries))
    allowed = rng.random(rows) < 0.8
    allowed[(vectors @ queries[0]).argmax()] = False
    return vectors.astype(np.float16), queries.astype(np.float32), allowed


def check(scan: Scan, vectors: Any, queries: Any, k: int, allowed: Any = None) -> None:
    """Assert that a scan gives the rows and the cosines that a store finds on the processor."""
    scores, rows = scan.search(queries, k, allowed)
    every = np.arange(len(vectors))
    right = top_k_rows(vectors, every, every if allowed is None else np.flatnonzero(allowed), queries, k)
    np.testing.assert_array_equal(rows, right.ids)
    np.testing.assert_array_equal(scores, right.scores)


def check_rows(scan: Scan, queries: Any, k: int, allowed: Any) -> None:
    """Assert that a list of allowed rows gives the same results as a mask, whatever was allowed before."""
    right = scan.search(queries, k, allowed)
    scan.search(queries, k)
    for found, expected in zip(scan.search(queries, k, np.flatnonzero(allowed)), right, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_what_comparing_everything_finds(kind: str, dtype: Any, device: str) -> None:
    for rows, batch, k in ((1, 1, 3), (31, 2, 31), (2500, 3, 1), (2500, 1, 20), (2500, 70, 7), (700, 2, 650)):
        vectors, queries, allowed = case(kind, rows, 48, batch)
        scan = Scan(vectors, dtype, device=device)
        for mask in (None, allowed, np.zeros(rows, dtype=np.bool_), allowed):
            check(scan, vectors, queries, k, mask)
        check_rows(scan, queries, k, allowed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_that_are_scattered_are_found_by_the_scan_alone(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of these, what rounding may do to scores is less than what lies between the k-th and the last group."""
    vectors, queries, _ = case("scattered", 20_000, 256, 8)
    scan = Scan(vectors, dtype, device="cpu")
    monkeypatch.setattr(scan, "_compared", lambda query, k: pytest.fail("every row was compared"))
    check(scan, vectors, queries, 20)


def test_what_rounding_hides_is_found() -> None:
    """The best of all has many small numbers that int8 takes for 0; the others lose nothing."""
    dim, each = 48, 32
    vectors = np.zeros((40 * each, dim), dtype=np.float16)
    vectors[: 39 * each : each, 0] = np.linspace(0.92, 0.9, 39)
    vectors[-1, 0], vectors[-1, 1:] = 0.9, 0.49 * 0.9 / 127
    query = np.full((1, dim), 0.9 / np.sqrt(dim - 1), dtype=np.float32)
    query[0, 0] = np.sqrt(1 - 0.9**2)
    scan = Scan(vectors, "int8", device="cpu")
    assert scan.search(query, 1)[1] == len(vectors) - 1
    check(scan, vectors, query, 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_were_added_are_found(dtype: Any, device: str) -> None:
    vectors, queries, allowed = case("scattered", 1000, 32, 2)
    scan = Scan(vectors[:10], dtype, device=device)
    for end in (11, 500, 510, 1000):
        check(scan, vectors[: len(scan)], queries, 5)
        scan.append(vectors[len(scan) : end])
        assert len(scan) == end
    check(scan, vectors, queries, 5, allowed)
    scores, rows = scan.search(queries, 5, allowed[:300])
    assert rows.max() < 300
    check(Scan(vectors[:300], dtype, device=device), vectors[:300], queries, 5, allowed[:300])
    assert (scores == Scan(vectors[:300], dtype, device=device).search(queries, 5, allowed[:300])[0]).all()


def test_of_equals_the_lower_key_comes_first_also_where_only_some_of_them_fit() -> None:
    scores = np.array([[5, 4, 4, 4, 3], [5, 4, 3, 2, 1], [2, 2, 1, 1, -np.inf]], dtype=np.float32)
    keys = np.array([[1, 9, 8, 7, 0], [9, 8, 7, 6, 5], [4, 3, 6, 5, -1]])
    best = Near(keys, scores).best(keys, 2)
    assert best[1].tolist() == [[1, 7], [9, 8], [3, 4]]
    assert best[0].tolist() == [[5, 4], [5, 4], [2, 2]]
    wide = Near(keys, scores).best(keys, 6)
    assert wide[1].tolist() == [[1, 7, 8, 9, 0, -1], [9, 8, 7, 6, 5, -1], [3, 4, 5, 6, -1, -1]]
    assert keys[0].tolist() == [1, 9, 8, 7, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_more_is_told_than_may_be_among_the_best(dtype: Any) -> None:
    """To sort all that the scan compares exactly would take longer than to find it."""
    vectors, queries, _ = case("scattered", 2500, 48, 3)
    near = Scan(vectors, dtype, device="cpu").near(queries, 7)
    assert near.rows.shape == (3, 7)
    assert (np.diff(near.scores) <= 0).all()
    vectors[900:910] = vectors[near.rows[0, 6]]
    assert Scan(vectors, dtype, device="cpu").near(queries, 7).rows.shape[1] >= 17


@pytest.mark.parametrize("device", DEVICES)
def test_threads_take_turns(device: str) -> None:
    vectors, queries, allowed = case("scattered", 3000, 32, 8)
    scan, failures = Scan(vectors, device=device), []

    def ask(number: int) -> None:
        try:
            for _ in range(10):
                check(scan, vectors, queries[: 1 + number], 3 + number, allowed if number % 2 else None)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_without_rows_or_queries_nothing_is_found() -> None:
    vectors, queries, _ = case("scattered", 3, 16, 2)
    scores, rows = Scan(vectors[:0], device="cpu").search(queries, 2)
    assert rows.tolist() == [[-1, -1]] * 2
    assert np.isneginf(scores).all()
    assert Scan(vectors, device="cpu").search(queries[:0], 2)[0].shape == (0, 2)


def test_what_does_not_fit_together_is_refused() -> None:
    vectors, queries, _ = case("scattered", 3, 16, 2)
    scan = Scan(vectors, device="cpu")
    with pytest.raises(ModelError, match="the mask has 4 values, but there are 3 rows"):
        scan.search(queries, 1, np.ones(4, dtype=np.bool_))
    for rows in ([0, 3], [-1, 2]):
        with pytest.raises(ModelError, match=r"rows .* but there are only 3"):
            scan.search(queries, 1, np.array(rows))
    check(scan, vectors, queries, 1)
    with pytest.raises(ModelError, match=r"queries have shape \[2, 8\]"):
        scan.search(queries[:, :8], 1)
    with pytest.raises(ModelError, match=r"queries have shape \[16\], not \[queries, 16\]"):
        scan.search(queries[0], 1)
    with pytest.raises(ModelError, match="k must be at least 1, not 0"):
        scan.search(queries, 0)
    with pytest.raises(ModelError, match=r"vectors have shape \[3, 8\]"):
        scan.append(vectors[:, :8])


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_interpreted_the_kernels_are_the_plain_steps() -> None:
    """Tiles that are not filled, masks, digits; and a search with them from end to end."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    error, are_exact, is_same = json.loads(done.stdout)
    assert error < 1e-5
    assert are_exact
    assert is_same


@pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")
@pytest.mark.parametrize(("dtype", "batch"), list(product(DTYPES, BATCHES)), ids=str)
def test_on_a_gpu_a_large_collection_is_searched_exactly(dtype: Any, batch: int) -> None:
    vectors, queries, allowed = case("scattered", 100_003, 512, batch)
    scan = Scan(vectors, dtype)
    for mask in (None, allowed):
        check(scan, vectors, queries, 20, mask)
