"""Retrieval beside its peers, over toy vectors: the right answers are right, and every way is measured as it should."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.scripts import script

DIM, SMALL, LARGE = 16, 2_000, 10_400
EQUAL, LEAST = "finding as much as Sightline", "at a recall of 0.97"
GRAPHS = ["FAISS HNSW", "usearch HNSW"] if find_spec("usearch") else ["FAISS HNSW"]


def unit(seed: int, count: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def retrieval() -> Iterator[ModuleType]:
    module = script("benchmarks.retrieval")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "apart", lambda step, cores: module.do(*step))
        patch.setattr(module, "bandwidth", lambda cores: 1e10)
        patch.setattr(module, "QUICK_SECONDS", 0.0)
        yield module


def begin(retrieval: ModuleType, work: Path, queries: int = 16) -> None:
    """A work folder in which the embeddings are there already."""
    retrieval.begin(work, retrieval.Settings("default", 64, queries, retrieval.QUICK_CARE, 0.0, 2))
    np.savez(work / "embeddings.npz", i=unit(0, 100), t=unit(1, 100), model="made up")


def run(retrieval: ModuleType, work: Path, *more: str, sizes: str = f"{SMALL},{LARGE}") -> dict[str, Any]:
    file = work.with_suffix(".json")
    options = ["--quick", "--queries", "16", "--sizes", sizes, "--work", str(work), "--json", str(file), *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: 2)
        patch.setattr("sys.argv", ["retrieval.py", *options])
        retrieval.main()
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("retrieval") / "work"


@pytest.fixture(scope="module")
def result(retrieval: ModuleType, work: Path) -> dict[str, Any]:
    begin(retrieval, work)
    return run(retrieval, work, "--keep")


def asked(result: dict[str, Any], way: str, items: int, cores: int = 2) -> Any:
    return next(row for row in result["rows"] if (row["way"], row["items"]) == (way, items))["cores"][str(cores)]


def test_every_way_is_measured_at_every_size(result: dict[str, Any]) -> None:
    ways = ["Sightline", "Sightline, all compared", "FAISS flat", *GRAPHS]
    rows = [row for row in result["rows"] if "left_out" not in row]
    assert [(row["items"], row["way"]) for row in rows] == [(n, w) for n in (SMALL, LARGE) for w in ways]
    for row in rows:
        assert row["build_seconds"] > 0 < row["MB_on_disk"]
        assert set(row["cores"]) == {"1", "2"}
        for found in row["cores"].values():
            assert {EQUAL, "among 0.01", "among 0.1", "among 0.5", "MB_of_its_own", "MB_of_files"} <= set(found)
            assert 0 < found[EQUAL]["p50_ms"] <= found[EQUAL]["p99_ms"]


@pytest.mark.parametrize("way", ["Sightline, all compared", "FAISS flat"])
def test_what_compares_everything_finds_everything(result: dict[str, Any], way: str) -> None:
    for items in (SMALL, LARGE):
        found = asked(result, way, items)
        assert found[EQUAL]["recall@20"] == pytest.approx(1, abs=0.01), "but for ties in half precision"
        assert found["among 0.1"]["recall@20"] == pytest.approx(1, abs=0.01)
        assert LEAST not in found
    assert asked(result, "FAISS flat", LARGE)["with_half_deleted"]["recall@20"] == pytest.approx(1, abs=0.01)


def test_what_has_an_effort_is_tuned_to_what_sightline_finds(result: dict[str, Any]) -> None:
    assert asked(result, "Sightline", LARGE)[EQUAL]["effort"] is None, "as users have it"
    for way in ("Sightline", *GRAPHS):
        found = asked(result, way, LARGE)
        assert found[EQUAL]["recall@20"] > 0.97
        assert found[LEAST]["recall@20"] > 0.93, "tuned on other queries"
        assert found[LEAST]["effort"] < (found[EQUAL]["effort"] or 10**9)
        assert found["among 0.5"]["recall@20"] > 0.93


def test_what_was_deleted_is_not_found_and_what_cannot_delete_says_so(result: dict[str, Any]) -> None:
    for way in ("Sightline", *GRAPHS[1:]):
        assert asked(result, way, LARGE)["with_half_deleted"]["recall@20"] > 0.9
        assert asked(result, way, LARGE)["add_1000_seconds"] > 0
    assert "no way to delete" in asked(result, "FAISS HNSW", LARGE)["delete"]


def test_the_result_is_a_benchmark_like_the_others(result: dict[str, Any]) -> None:
    assert result["experiment"] == "retrieval"
    assert {f"exponent of {way}, in items" for way in ("Sightline", "FAISS flat", *GRAPHS)} <= set(result["ratios"])
    every, some = (result["floor_ms"][str(size)] for size in (SMALL, LARGE))
    assert every == pytest.approx(1000 * SMALL * 2 * DIM / 1e10)
    assert some == pytest.approx(1000 * (LARGE * 8 + 32 * 2048 * 2 * DIM) / 1e10), (
        "signs in whole words, and candidates"
    )


def test_a_run_goes_on_where_it_stopped_and_clears_away(
    retrieval: ModuleType, work: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[list[str]] = []
    monkeypatch.setattr(retrieval, "apart", lambda step, cores: (steps.append(step), retrieval.do(*step)))
    (work / "notes" / f"{SMALL}-flat-1.json").unlink()
    again = run(retrieval, work)
    assert [step[2] for step in steps] == ["flat-1"]
    assert asked(again, "Sightline", LARGE) == asked(result, "Sightline", LARGE)
    assert not work.exists()


def made_up(way: str, items: int, build: float, **found: tuple[float, float]) -> dict[str, Any]:
    """A row in which one core takes twice as long as two; found: recall and milliseconds for each aim."""
    aims = {"equal": EQUAL, "least": LEAST}
    cores = {
        str(count): {aims[aim]: {"recall@20": recall, "p50_ms": 2 * ms / count} for aim, (recall, ms) in found.items()}
        for count in (1, 2)
    }
    return {"way": way, "items": items, "build_seconds": build, "cores": cores}


def test_ratios_say_who_is_quicker_and_how_each_grows(retrieval: ModuleType) -> None:
    rows = [
        made_up("Sightline", 10**5, 1.0, equal=(1.0, 2.0), least=(0.97, 1.0)),
        made_up("Sightline", 10**6, 10.0, equal=(1.0, 8.0), least=(0.98, 4.0)),
        made_up("Sightline", 10**7, 100.0, equal=(1.0, 80.0), least=(0.98, 40.0)),
        made_up("FAISS flat", 10**6, 5.0, equal=(1.0, 400.0)),
        made_up("FAISS HNSW", 10**5, 50.0, equal=(1.0, 1.0), least=(0.97, 0.5)),
        made_up("FAISS HNSW", 10**6, 700.0, equal=(0.95, 2.0), least=(0.97, 1.0)),
        {"way": "FAISS HNSW", "items": 10**7, "left_out": "a graph of so many takes hours to build on two cores"},
        {"way": "usearch HNSW", "items": 10**6, "left_out": "usearch is not installed"},
    ]
    assert retrieval.ratios(rows, 2, {10**5: 1.0, 10**6: 4.0, 10**7: 40.0}) == pytest.approx(
        {
            f"times as quick as FAISS flat {EQUAL} at 1,000,000": 50,
            "times as quickly built as FAISS flat at 1,000,000": 0.5,
            f"times as quick as FAISS HNSW {LEAST} at 1,000,000": 0.25,  # which found less than Sightline at the other
            "times as quickly built as FAISS HNSW at 1,000,000": 70,
            **{f"times as quick with 2 cores as with one at {size:,}": 2 for size in (10**5, 10**6, 10**7)},
            **{f"times the floor of the memory at {size:,}": 2 for size in (10**5, 10**6, 10**7)},
            "times as quick as paper 1's 1.6 s at 1,000,000": 200,
            "exponent of Sightline, in items": np.log10(40) / 2,
            "exponent of Sightline, in items, from 1,000,000 to 10,000,000": 1,
            "exponent of FAISS HNSW, in items": np.log10(2),
        },
        rel=1e-3,
    )


def test_a_peer_that_is_not_installed_or_too_slow_to_build_is_left_out_with_a_reason(
    retrieval: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(retrieval, tmp_path / "work")
    monkeypatch.setattr(retrieval, "find_spec", lambda name: None if name in ("usearch", "faiss") else object())
    reasons = [row.get("left_out") for row in run(retrieval, tmp_path / "work", sizes="200")["rows"]]
    assert reasons == [None, None, *(f"{name} is not installed" for name in ("faiss", "faiss", "usearch"))]
    monkeypatch.undo()
    hnsw = retrieval.WAYS[3]
    assert "hours" in retrieval.left_out(retrieval.Case(tmp_path, 10**7), hnsw)["left_out"]
    assert not retrieval.left_out(retrieval.Case(tmp_path, 10**6), hnsw)


def test_a_folder_that_is_something_else_is_not_worked_in(retrieval: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(SystemExit, match="holds other files"):
        begin(retrieval, tmp_path)
    begin(retrieval, tmp_path / "work")
    with pytest.raises(SystemExit, match="other settings"):
        begin(retrieval, tmp_path / "work", queries=7)


def test_the_right_answers_are_those_of_comparing_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("benchmarks.photo_vectors")
    monkeypatch.setattr(module, "BLOCK", 37)
    vectors, queries = unit(2, 200).astype(np.float16), unit(3, 5)
    mask = np.random.default_rng(0).random(200) < 0.3
    scores = queries @ vectors.astype(np.float32).T
    everything, some = module.truth(vectors, queries, [None, mask])
    assert (np.sort(everything) == np.sort(np.argsort(-scores)[:, :20])).all()
    assert (np.sort(some) == np.sort(np.argsort(np.where(mask, -scores, 9))[:, :20])).all()
    assert module.recall(everything, everything) == 1
    assert module.recall([everything[0][:5]], everything[:1]) == 0.25


def test_vectors_around_photos_are_like_photos_but_not_the_same() -> None:
    module = script("benchmarks.photo_vectors")
    photos = unit(0, 100)
    made = np.concatenate(list(module.around(module.Real(photos, photos, "made up"), 3_000)))
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, rtol=1e-5)
    nearest = (made @ photos.T).max(axis=1)
    assert 0.6 < nearest.mean() < 0.95
    assert nearest.max() < 0.9999


@pytest.mark.parametrize(("target", "effort"), [(0.1, 20), (0.5, 50), (0.97, 97), (2.0, 400)])
def test_the_least_effort_that_is_enough_is_found(retrieval: ModuleType, target: float, effort: int) -> None:
    class Growing:
        """Finds one in a hundred more with every step of effort."""

        def efforts(self) -> tuple[int, int]:
            return 20, 400

        def ask(self, query: np.ndarray, effort: int) -> np.ndarray:
            return np.arange(100)[:effort]

    steps = script("benchmarks.vector_search.steps")
    found = steps.least_effort(Growing(), np.zeros((3, 2)), np.tile(np.arange(100), (3, 1)), target)
    assert effort <= found <= effort * 17 / 16
