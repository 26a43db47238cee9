import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from evaluation.made_up import MadeUp, record
from sightline.errors import EvaluationError
from sightline.evaluation import evaluate, table
from sightline.evaluation.report import compare


def result(model: str = "m", r1: float = 50.0, **changes: Any) -> dict[str, Any]:
    side = {"R@1": r1, "R@5": 80.0, "R@10": 90.0, "medR": 1.0}
    fields = {"model": model, "data": "flickr", "lang": "en", "protocol": "karpathy", "stages": ["embed"]}
    fields |= {"images": 1000, "captions": 5000, "distractors": 0, "fusion": None, "weight": None}
    return {**fields, "text_to_image": side, "image_to_text": side, "rSum": 2 * (r1 + 170), **changes}


def cells(markdown: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines()]


def test_a_table_shows_both_directions_with_intervals_and_problems() -> None:
    photos = [record(number, [f"{number}"], broken=number == 2) for number in range(4)]
    evaluation = evaluate(MadeUp(texts=np.eye(4), images=np.eye(4)), photos, data="four")
    out = io.StringIO()
    Console(file=out, width=120).print(table(evaluation))
    shown = out.getvalue()
    low, high = evaluation.to_json()["ci95"]["text_to_image"]["R@1"]
    assert f"75.0 ± {(high - low) / 2:.1f}" in shown
    for part in ("made-up on four (en, karpathy): embed", "text to image", "image to text", "images unreadable: 1"):
        assert part in shown


def test_results_are_compared_in_the_order_given_with_the_best_in_bold() -> None:
    head, rule, first, second = cells(compare([result("a", 50), result("b", 60.04)]))
    assert head[0] == "model"
    assert len(head) == len(rule) == len(first) == 11
    assert [first[0], second[0]] == ["a", "b"]
    assert [first[4], second[4]] == ["50.0", "**60.0**"]
    assert [first[5], second[5]] == ["**80.0**", "**80.0**"]


def test_results_of_different_galleries_are_not_rivals() -> None:
    rows = cells(compare([result("a", 50), result("b", 60, images=5000), result("c", 40)]))[2:]
    assert [row[4] for row in rows] == ["**50.0**", "60.0", "40.0"]
    assert [row[3] for row in rows] == ["1,000", "5,000", "1,000"]


def test_a_result_says_how_the_matchers_score_was_used() -> None:
    changes = {"stages": ["embed", "match@20"], "fusion": "add", "weight": 0.1, "distractors": 30000}
    row = cells(compare([result(**changes)]))[2]
    assert row[1] == "embed, match@20 (add 0.1)"
    assert row[3] == "1,000 + 30,000"


def test_a_result_with_a_number_missing_is_refused() -> None:
    with pytest.raises(EvaluationError, match=r"result of m is incomplete.*rSum"):
        compare([{name: value for name, value in result().items() if name != "rSum"}])
    with pytest.raises(EvaluationError, match="protocol"):
        compare([{name: value for name, value in result().items() if name != "protocol"}])
    with pytest.raises(EvaluationError, match="no results"):
        compare([])


def test_names_cannot_break_the_table() -> None:
    assert len(cells(compare([result("a|b\nc")]))) == 3


def test_the_package_imports_neither_torch_nor_rich() -> None:
    script = "import sys, sightline.evaluation; assert not {'torch', 'rich'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)
