"""The cascade that a bundle should have is chosen by what was measured."""

from typing import Any

import numpy as np
import pytest

from benchmarks import cascade
from benchmarks.provenance import RESULTS, read_result
from sightline.bundle.model import Defaults
from sightline.bundle.spec import read_spec
from sightline.registry.loader import locate


def test_ranks_follow_from_the_scores_of_stages() -> None:
    items, right = np.array([[1, 2, 3], [4, 5, 6]]), np.array([3, 9])
    embed, late = np.array([[0.9, 0.8, 0.7]] * 2), np.array([[1.0, 2.0, 3.0]] * 2)
    logits = [{1: 5.0, 2: 0.0, 3: 1.0}, {4: 1.0, 5: 0.0, 6: 0.0}]
    judged = cascade.Judged(items, embed, late, logits, right, np.arange(2))
    alone = Defaults(fusion="ce")
    assert judged.ranks(0, 0, alone).tolist() == [3, np.inf], "the second question's item is no candidate"
    assert judged.ranks(3, 0, alone)[0] == 1
    assert judged.ranks(0, 3, alone)[0] == 2


def test_a_gain_is_of_the_same_questions_with_an_interval_that_holds_it() -> None:
    before = np.tile([2.0, 1, 20, 7], 50)
    after = np.where(np.arange(200) < 60, 1.0, before)
    found = cascade.gain(before, after, np.arange(200))
    assert found["R@1"]["value"] == pytest.approx(100 * ((after == 1).mean() - (before == 1).mean()))
    assert 0 < found["sum"]["low"] < found["sum"]["value"] < found["sum"]["high"]


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
def test_the_better_half_by_half_in_no_more_time_is_chosen(
    others: list[dict[str, Any]], expected: tuple[int, int]
) -> None:
    assert cascade.chosen({"rows": [row(0, 20, 100, 0.0, 0.0), *others]}) == expected


def test_the_bundled_model_has_the_cascade_that_was_measured_to_be_better() -> None:
    defaults = read_spec(locate("default")).defaults
    assert (defaults.late, defaults.rerank) == cascade.chosen(read_result(RESULTS / "cascade.json"))
