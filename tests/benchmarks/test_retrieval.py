"""The retrieval benchmark: exact answers are exact, efforts are tuned, every index is measured, ratios follow."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import retrieval, samples
from benchmarks.photo_vectors import around, recall, truth
from benchmarks.provenance import ROOT
from benchmarks.vector_search import steps
from benchmarks.vector_search.indexes import Index
from benchmarks.vector_search.steps import EQUAL, LEAST, least_effort

DIM, SIZE = 64, 12_000


def unit(seed: int, count: int, dim: int = DIM) -> Any:
    return samples.units(np.random.default_rng(seed), count, dim)


def test_recall_is_the_share_of_the_right_answers_that_were_found() -> None:
    vectors = unit(2, 200).astype(np.float16)
    right = truth(vectors, vectors[:5].astype(np.float32))
    assert (right[:, 0] == np.arange(5)).all()
    assert (recall(right, right), recall([right[0][:5]], right[:1])) == (1, 0.25)


def test_vectors_around_photos_are_like_photos_but_not_the_same() -> None:
    photos = unit(0, 100)
    made = np.concatenate(list(around(photos, 3_000)))
    nearest = (made @ photos.T).max(axis=1)
    assert 0.6 < nearest.mean() < 0.95
    assert nearest.max() < 0.9999


@pytest.mark.parametrize(("target", "effort"), [(0.1, 20), (0.5, 50), (0.97, 97), (2.0, 400)])
def test_the_least_effort_that_is_enough_is_found(target: float, effort: int) -> None:
    class Growing(Index):
        """Finds one in a hundred more with every step of effort."""

        limits = 20, 400

        def search(self, query: Any, effort: int | None = None) -> Any:
            return np.arange(100)[:effort]

    found = least_effort(Growing(), np.zeros((3, 2)), np.tile(np.arange(100), (3, 1)), target)
    assert effort <= found <= effort * 17 / 16


def test_every_index_is_measured_once_and_the_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, done = tmp_path / "work", []
    work.mkdir()
    monkeypatch.setenv("SIGHTLINE_COMMIT", "0" * 40)
    monkeypatch.setattr(steps, "real", lambda *_: (unit(0, 50), unit(1, 60)))

    def in_this_process(module: str, option: str, *words: str, cores: int) -> Any:
        done.append(words[1:])
        return retrieval.run_step(*words)

    monkeypatch.setattr(retrieval, "in_a_process", in_this_process)
    words = ["--quick", "--sizes", f"{SIZE}", "--queries", "20", "--work", str(work), "--json", str(tmp_path / "it")]
    monkeypatch.setattr("sys.argv", [f"{ROOT}/benchmarks/retrieval.py", *words])
    retrieval.main()
    assert len(done) == len(set(done)), "nothing is measured twice"
    assert not list(work.iterdir())
    rows = {row["way"]: row for row in json.loads((tmp_path / "it").read_text())["rows"] if "cores" in row}
    assert {"Sightline", "Sightline, all compared", "FAISS flat", "FAISS HNSW"} <= set(rows)
    for name, row in rows.items():
        found = row["cores"]["2"]
        assert found[EQUAL]["recall@20"] > 0.93, name
        assert (LEAST in found) == (name not in ("Sightline, all compared", "FAISS flat"))


def test_ratios_say_who_is_faster_and_how_each_grows() -> None:
    def row(way: str, items: int, build: float, recall: float, ms: float) -> dict[str, Any]:
        cores = {str(count): {EQUAL: {"recall@20": recall, "p50_ms": 2 * ms / count}} for count in (1, 2)}
        return {"way": way, "items": items, "build_seconds": build, "cores": cores}

    rows = [row("Sightline", 10_000, 1.0, 1.0, 1.0), row("Sightline", 1_000_000, 10.0, 1.0, 10.0)]
    rows += [row("FAISS flat", 1_000_000, 20.0, 1.0, 30.0), row("FAISS HNSW", 10_000, 4.0, 0.9, 0.1)]
    found = retrieval.ratios(rows, 2)
    assert found["times as quick as FAISS flat finding as much as Sightline at 1,000,000"] == pytest.approx(3)
    assert found["times as quickly built as FAISS flat at 1,000,000"] == pytest.approx(2)
    assert not [name for name in found if name.startswith("times as quick as FAISS HNSW")], "it finds less"
    assert found["times as quick with 2 cores as with one at 10,000"] == pytest.approx(2)
    assert found["times as quick as paper 1's 1.6 s at 1,000,000"] == pytest.approx(160)
    assert found["exponent of Sightline, in items"] == pytest.approx(0.5)
