"""Costs are learnt from searches, outlast a process, and are not thrown by a slow moment."""

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.made_up import Clock
from sightline.cache import cache_folder
from sightline.retrieval.costs import Cost, Costs, fit


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))


@given(
    fixed=st.floats(0, 0.1),
    each=st.floats(0.0005, 0.05),
    items=st.lists(st.integers(1, 100), min_size=9, max_size=25, unique=True),
    slow=st.integers(0, 1),
    noise=st.floats(0, 0.02),
)
@settings(deadline=None)
def test_the_true_cost_is_found_in_spite_of_slow_moments(
    fixed: float, each: float, items: list[int], slow: int, noise: float
) -> None:
    samples = [(n, (fixed + each * n) * (1 + noise * (n % 2))) for n in items]
    for place in range(slow):
        samples[place] = (samples[place][0], 10.0)
    found = fit(samples)
    middle = sorted(items)[len(items) // 2]
    assert found.fixed + found.each * middle == pytest.approx(fixed + each * middle, rel=0.2, abs=0.005)


def test_equal_batches_give_a_cost_for_each_item() -> None:
    assert fit([(20, 0.2), (20, 0.22), (20, 5.0)]) == Cost(0, pytest.approx(0.011))


def test_a_larger_batch_that_was_faster_by_chance_makes_nothing_free() -> None:
    assert fit([(10, 0.2), (20, 0.1)]).each > 0


def test_what_is_affordable_is_never_negative() -> None:
    assert Cost(0.1, 0.01).affordable(0.05) == 0
    assert Cost(0.1, 0.01).affordable(0.2) in (9, 10)
    assert Cost(0.1, 0.0).affordable(0.2) > 1000
    assert Cost(0.1, 0.01).affordable(-1) == 0


def test_costs_outlast_the_process_and_models_are_kept_apart() -> None:
    one = Costs("one")
    assert one.of("match") is None
    one.note("match", 10, 0.5)
    Costs("other").note("late", 10, 0.1)
    assert Costs("one").of("match") == Cost(0, 0.05)
    assert Costs("one").of("late") is None
    assert Costs("other").of("late") == Cost(0, 0.01)


def test_only_the_latest_samples_count() -> None:
    costs = Costs("m")
    for _ in range(40):
        costs.note("match", 10, 1.0)
    for _ in range(40):
        costs.note("match", 10, 0.1)
    assert costs.of("match") == Cost(0, 0.01)


def test_a_busy_process_writes_seldom(tmp_path: Path) -> None:
    clock = Clock()
    costs = Costs("m", clock)
    for _ in range(6):
        costs.note("match", 1, 0.1)
    written = (cache_folder() / "costs.json").stat().st_mtime_ns, (cache_folder() / "costs.json").stat().st_ino
    for _ in range(50):
        costs.note("match", 1, 0.1)
    assert (
        (cache_folder() / "costs.json").stat().st_mtime_ns,
        (cache_folder() / "costs.json").stat().st_ino,
    ) == written
    clock.advance(60)
    costs.note("match", 1, 0.1)
    assert len(json.loads((cache_folder() / "costs.json").read_text())["m"]["match"]) == 25


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"m": 3}', '{"m": {"match": [[1]]}}', '{"m": {"match": [["a", "b"]]}}']
)
def test_a_damaged_file_counts_for_nothing(text: str) -> None:
    cache_folder().mkdir(parents=True)
    (cache_folder() / "costs.json").write_text(text)
    costs = Costs("m")
    assert costs.of("match") is None
    costs.note("match", 2, 0.1)
    assert Costs("m").of("match") == Cost(0, 0.05)


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "file" / "cache"))
    costs = Costs("m")
    costs.note("match", 1, 0.5)
    assert costs.of("match") == Cost(0, 0.5)


def test_threads_share_costs() -> None:
    costs = Costs("m")
    threads = [threading.Thread(target=lambda: [costs.note("match", 2, 0.02) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert costs.of("match") == Cost(0, 0.01)
