"""The cascade that a bundle should have is chosen by what was measured."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import cascade, samples
from benchmarks.provenance import RESULTS, read_result
from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec
from sightline.collection import Collection
from sightline.registry.loader import locate


def test_ranks_are_those_of_searches(tmp_path: Path, tiny_bundle: Path) -> None:
    model, records = Bundle.open(tiny_bundle), samples.made_up(3)
    texts = [record.captions_in("en")[0] for record in records[:2]]
    with Collection.open(cascade.gallery(records[:2], records[2:], model, tmp_path), model) as collection:
        ranks = cascade.ranks_of(collection, model, texts, 0, 2)
        times = cascade.times_of(collection, model, texts, [(0, 0), (0, 2)])
    assert set(ranks) <= {1.0, 2.0, 3.0}
    assert min(times) > 0


def test_times_are_medians_of_searches_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def search(_: Any, __: Any, caption: str, late: int, rerank: int) -> SimpleNamespace:
        asked.append((caption, rerank))
        return SimpleNamespace(took_ms={"encode": float(len(caption)), "match": float(late + rerank)})

    monkeypatch.setattr(cascade, "search", search)
    found = cascade.times_of(None, None, ["a", "bb", "cccccc"], [(0, 0), (25, 20)])  # type: ignore[arg-type]
    assert found == [2.0, 47.0]
    assert asked[2:] == [(caption, rerank) for caption in ("a", "bb", "cccccc") for rerank in (0, 20)], (
        "after a warm-up"
    )


def test_a_gain_is_of_the_same_questions_with_an_interval_that_holds_it() -> None:
    before = np.tile([2.0, 1, 20, 7], 50)
    after = np.where(np.arange(200) < 60, 1.0, before)
    found = cascade.gain(before, after)
    assert found["value"] == pytest.approx(100 * sum((after <= k).mean() - (before <= k).mean() for k in (1, 5, 10)))
    assert 0 < found["low"] < found["value"] < found["high"]
    (usual, better) = cascade.rows(
        [{"late": late, "rerank": 20, "ms": 1.0, "ranks": ranks} for late, ranks in ((0, before), (25, after))]
    )
    assert usual["gain"]["value"] == 0 < better["gain"]["value"]
    assert cascade.chosen([usual, better]) == (25, 20)


def row(late: int, rerank: int, ms: float, first: float, low: float) -> dict[str, Any]:
    halves = {"first_half": {"sum": {"value": first}}, "second_half": {"sum": {"value": low + 1, "low": low}}}
    return {"late": late, "rerank": rerank, "ms": ms, "over_usual": halves}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([row(100, 20, 101, 2.0, 0.5), row(50, 10, 60, 1.0, 0.9)], (100, 20)),
        ([row(100, 20, 101, 2.0, -0.1), row(50, 10, 60, 1.0, 0.9)], (0, 20)),  # only the best is tried
        ([row(400, 30, 160, 9.0, 8.0), row(50, 10, 60, 1.0, 0.9)], (50, 10)),  # slower ones do not count
    ],
)
def test_the_better_half_by_half_in_no_more_time_is_chosen(others: list[Any], expected: tuple[int, int]) -> None:
    assert cascade.chosen([row(0, 20, 100, 0.0, 0.0), *others]) == expected


def test_the_bundled_model_has_the_cascade_that_was_measured_to_be_better() -> None:
    defaults = read_spec(locate("default")).defaults
    assert (defaults.late, defaults.rerank) == cascade.chosen(read_result(RESULTS / "cascade.json")["rows"])
