"""The part of the results page that is about paper 2: made of its result files, and honest where they are not there."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import made_up
from benchmarks.test_report import cells, judgements, section, written
from replication.report import related, special
from replication.report.estimates import CONFIRMED, NOT_CONFIRMED, UNDECIDED
from replication.report.paper2 import COCO, HIERARCHY, INSTANCES, SPECIAL
from replication.report.results import WAYS, System

MECHANISMS = "Tables 1 and 2: the mechanisms"
HIERARCHICAL, PARTS = related.TABLES
TITLES = [MECHANISMS, HIERARCHICAL, PARTS, special.TITLE, related.FIGURE_6, related.FIGURE_7, special.COST]


def write(
    root: Path,
    run: str,
    recalls: tuple[float, ...],
    seed: int = 0,
    gains: dict[str, tuple[float, float]] | None = None,
    data: str = "flickr8k-test",
    among: str = "paper2",
    **more: Any,
) -> None:
    """Write the file of one run; gains: low and high of what it gains over others; among: the folder of its like."""
    result = {**made_up.row(System("BE"), recalls, half=1.0), "data": data}
    over = {other: {"rSum": (low + high) / 2, "low": low, "high": high} for other, (low, high) in (gains or {}).items()}
    content = {"experiment": "paper2", "run": run, "seed": seed, "result": result, "gain_over": over, "special": None}
    content |= {"curve": [], "training": {run: {"steps": 2000, "seconds": 60.0}}, "commit": "0" * 40, **more}
    folder = root / "results" / among
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run}-{data}-seed{seed}.json").write_text(json.dumps({**content, "machine": made_up.MACHINE}))


def six(four: tuple[float, float, float, float]) -> tuple[float, ...]:
    """Six recalls of which the paper gives four."""
    return (four[0], four[1], 90.0, four[2], four[3], 98.0)


def recalls_at_1(value: float) -> dict[str, Any]:
    return {way: {kind: {part: {"R@1": value} for part in ("5%", "10%", "20%")} for kind in ("hardest", "infrequent")}
            for way in WAYS}  # fmt: skip


def test_what_is_not_there_is_left_out_with_the_command_that_makes_it(tmp_path: Path) -> None:
    write(tmp_path, "fusion", made_up.flat(60.0), data="flickr8k-val")
    page = written(tmp_path)
    for title in TITLES:
        assert "Left out: `python -m replication.paper2 --" in section(page, title), title
    assert "--runs plain,base,base-twice,fusion,standalone,full --seeds 0,1,2`" in section(page, MECHANISMS)


def test_the_papers_own_numbers_confirm_all_that_it_says(tmp_path: Path) -> None:
    for root, rows, title in (
        (tmp_path / "a", HIERARCHY, HIERARCHICAL),
        (tmp_path / "b", INSTANCES, PARTS),
    ):
        for run, four in rows.items():
            gains = {other: (sum(four) - sum(own), 1e3) for other, own in rows.items()}
            write(root, run, six(four), gains=gains, among=related.BESIDE)
            write(root, run, made_up.flat(50.0))
        text = section(written(root), title)
        judged = judgements(text)
        assert len(judged) >= 5
        assert set(judged.values()) == {CONFIRMED}, judged
        for run in rows:
            *_, ours, theirs, _ = cells(text, run)
            assert ours == theirs
        assert "Not measured" not in text


def test_rows_that_were_not_measured_are_named(tmp_path: Path) -> None:
    for run, value in (("base", 60.0), ("fusion", 61.0)):
        write(tmp_path, run, made_up.flat(value))
    text = section(written(tmp_path), MECHANISMS)
    assert "Not measured: plain, base-twice, standalone, full, bigru-base, bigru." in text
    assert cells(text, "full")[-2:] == ["–", "451.0"]
    assert cells(text, "fusion")[-1] == f"{sum(COCO['fusion']):.1f}"
    assert "Trained for 2,000 steps." in text.replace("\n", " ")
    assert len(judgements(text)) == 1


def test_a_gain_is_paired_whichever_of_the_two_was_set_against_the_other(tmp_path: Path) -> None:
    claim = "relations among instances help: fusion over base (rSum)"
    write(tmp_path, "fusion", made_up.flat(60.5))
    for low, high, expected in ((-5.0, -1.0, CONFIRMED), (1.0, 5.0, NOT_CONFIRMED), (-5.0, 1.0, UNDECIDED)):
        write(tmp_path, "base", made_up.flat(60.0), gains={"fusion": (low, high)})
        assert judgements(section(written(tmp_path), MECHANISMS))[claim] == expected


def test_several_seeds_give_a_mean_a_spread_and_a_verdict(tmp_path: Path) -> None:
    for seed, (base, fusion) in enumerate(((60, 62), (61, 63), (60.5, 62.6))):
        write(tmp_path, "base", made_up.flat(base), seed)
        write(tmp_path, "fusion", made_up.flat(fusion), seed, gains={"base": (-99.0, 99.0)})
    text = section(written(tmp_path), MECHANISMS)
    assert cells(text, "base")[-2] == "363.0 ± 3.0"
    assert judgements(text)["relations among instances help: fusion over base (rSum)"] == CONFIRMED


def test_special_queries_stand_beside_the_papers(tmp_path: Path) -> None:
    for seed in range(3):
        both = {"base": recalls_at_1(30.0 + seed), "run": recalls_at_1(33.0 + seed + seed / 10)}
        write(tmp_path, "fusion", made_up.flat(60.0), seed, special=both)
    text = section(written(tmp_path), special.TITLE)
    paper = SPECIAL["hardest", "5%"]
    gains = [f"{paper[1] - paper[0]:.1f}", f"{paper[3] - paper[2]:.1f}"]
    assert cells(text, "hardest", "5%") == ["31.0 ± 1.0", "34.1 ± 1.1", gains[0], "31.0 ± 1.0", "34.1 ± 1.1", gains[1]]
    assert set(judgements(text).values()) == {CONFIRMED}
    assert len(judgements(text)) == 4


@pytest.mark.parametrize(("value", "expected"), [(60.5, CONFIRMED), (50.0, NOT_CONFIRMED)])
def test_parameters_are_stable_within_a_point_of_mean_recall(tmp_path: Path, value: float, expected: str) -> None:
    write(tmp_path, "fusion", made_up.flat(60.0), among=related.BESIDE)
    gain = 6 * (value - 60)
    write(tmp_path, "k-5", made_up.flat(value), gains={"fusion": (gain - 1, gain + 1)}, among=related.BESIDE)
    page = written(tmp_path)
    text = section(page, related.FIGURE_6)
    assert judgements(text) == {"K = 5 is as good, within 6 (rSum)": expected}
    assert cells(text, "K", "10") == ["360.0"]
    assert cells(text, "τ", "0.5") == ["360.0"]
    assert "](plots/relation-parameters.svg)" in text
    assert (tmp_path / "docs/plots/relation-parameters.svg").is_file()


def test_the_losses_are_drawn_and_their_later_half_is_judged(tmp_path: Path) -> None:
    for seed in range(3):
        curve = [{"step": step, "initial": 1.0, "enhanced": 3.0 if step < 3 else 0.8 + seed / 100} for step in range(6)]
        write(tmp_path, "fusion", made_up.flat(60.0), seed, curve=curve)
    text = section(written(tmp_path), related.FIGURE_7)
    assert "](plots/relation-losses.svg)" in text
    assert "+19.0 [" in text
    assert set(judgements(text).values()) == {CONFIRMED}


def test_the_cost_of_relations_is_judged_by_what_was_asked(tmp_path: Path) -> None:
    steps = {
        "frozen": {"seconds": {"base": 0.02, "fusion": 0.025}, "share_of_relations": {"fusion": 0.2}},
        "three layers": {
            "seconds": {"base": 0.02, "fusion": 0.05},
            "share_of_relations": {"fusion": 0.6},
            "share_of_computing": {"fusion": 0.3},
        },
    }
    content = {"batch": 128, "fragments": 36, "words": 32, "repeats": 30, "steps": steps}
    (tmp_path / "results/paper2").mkdir(parents=True)
    path = tmp_path / "results/paper2/cost.json"
    path.write_text(json.dumps({**content, "commit": "0" * 40, "machine": made_up.MACHINE}))
    page = written(tmp_path)
    text = section(page, special.COST)
    assert cells(text, "frozen", "fusion") == ["20.0", "25.0", "20.0", "–"]
    assert cells(text, "three layers", "fusion") == ["20.0", "50.0", "60.0", "30.0"]
    assert "at most 35 %: of 3 shares, 1 is above." in text
    assert "Left out" in section(page, MECHANISMS), "the cost is no run"
