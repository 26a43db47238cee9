"""The part of the results page that is about paper 3: made of its result files, and honest where they are not there."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import made_up
from benchmarks.test_report import cells, judgements, section, written
from replication.report import inflated, shrunken
from replication.report.estimates import CONFIRMED, NOT_CONFIRMED, UNDECIDED
from replication.report.paper3 import COCO, FLICKR
from replication.report.results import System

TITLES = [*inflated.TABLES, inflated.SPEED]
FIRST, SECOND, SIXTH, FIGURE = inflated.TABLES
GPU = [("base", 32, 32, "float16", 0.4), ("base", 32, 32, "int8", 0.2), ("inflated", 64, 64, "float16", 1.6)]


def write(
    root: Path,
    run: str,
    recalls: tuple[float, ...],
    seed: int = 0,
    variant: str = "paper",
    gains: dict[str, tuple[float, float]] | None = None,
    data: str = "flickr8k-test",
    folder: str = "paper3",
) -> None:
    """Write the file of one run; gains: low and high of what it gains over others, query by query."""
    result = {**made_up.row(System("BE"), recalls, half=1.0), "data": data}
    over = {other: {"rSum": (low + high) / 2, "low": low, "high": high} for other, (low, high) in (gains or {}).items()}
    content: dict[str, Any] = {"experiment": "paper3", "run": run, "variant": variant, "seed": seed, "result": result}
    content |= {"gain_over": over, "commit": "0" * 40, "machine": made_up.MACHINE}
    place = root / "results" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{run}-{variant}-{data}-seed{seed}.json").write_text(json.dumps(content))


def write_speed(root: Path) -> None:
    rows = [
        {"model": model, "images": 100_000, "fragments": fragments, "words": words, "dtype": dtype, "ms": ms}
        | {"with_top_20_ms": ms + 0.1, "ratio": 1.5}
        for model, words, fragments, dtype, ms in [*GPU, ("fast", 1, 1, "float16", 0.05)]
    ]
    (root / "results").mkdir(exist_ok=True)
    content = {"gpu": rows, "commit": "0" * 40, "machine": made_up.MACHINE}
    (root / "results/late-gpu.json").write_text(json.dumps(content))


def test_what_is_not_there_is_left_out_with_the_command_that_makes_it(tmp_path: Path) -> None:
    page = written(tmp_path)
    for title in TITLES:
        assert "Left out: `python -m " in section(page, title), title
    assert "--runs F,B,I32,B-F,I-F,I-B,I-B-F --seeds 0,1,2`" in section(page, SECOND)
    assert "late --gpu`" in section(page, inflated.SPEED)


def test_the_papers_own_numbers_confirm_all_that_it_says(tmp_path: Path) -> None:
    """Of Flickr30k for the first two tables; of COCO, on a page of its own, for the others."""
    for root, numbers, titles in (
        (tmp_path / "flickr", FLICKR, (FIRST, SECOND)),
        (tmp_path / "coco", COCO, (SIXTH, FIGURE)),
    ):
        for run, six in numbers.items():
            write(root, run, six, gains={other: (sum(six) - sum(own), 1e3) for other, own in numbers.items()})
        page = written(root)
        for title in titles:
            judged = judgements(section(page, title))
            assert len(judged) >= 5, title
            assert set(judged.values()) == {CONFIRMED}, judged
            for name in inflated.TABLES[title][0]:
                *_, ours, theirs = cells(section(page, title), name)
                assert ours == theirs


def test_a_run_that_nothing_can_be_compared_with_makes_no_table(tmp_path: Path) -> None:
    for run in ("B", "L4"):
        write(tmp_path, run, made_up.flat(60.0))
    page = written(tmp_path)
    assert all("Left out" in section(page, title) for title in TITLES)
    assert not list((tmp_path / "docs/plots").iterdir())


def test_one_seed_is_judged_by_the_same_queries_put_to_both(tmp_path: Path) -> None:
    """Intervals of the two runs overlap by far; what one gains over the other on the same queries decides."""
    write(tmp_path, "F", made_up.flat(60.0))
    claim = "a shrunken fast model is far better: B->F over F (rSum)"
    for low, high, expected in ((1.0, 5.0, CONFIRMED), (-1.0, 7.0, UNDECIDED), (-5.0, -1.0, NOT_CONFIRMED)):
        write(tmp_path, "B-F", made_up.flat(60.5), gains={"F": (low, high)})
        assert judgements(section(written(tmp_path), SECOND))[claim] == expected
    write(tmp_path, "B-F", made_up.flat(60.5))
    assert judgements(section(written(tmp_path), SECOND))[claim] == UNDECIDED, "from worst to worst"


def test_several_seeds_are_judged_by_their_spread(tmp_path: Path) -> None:
    for seed, (fast, shrunk) in enumerate(((60, 62), (61, 63), (60.5, 62.6))):
        write(tmp_path, "F", made_up.flat(fast), seed)
        write(tmp_path, "B-F", made_up.flat(shrunk), seed, gains={"F": (-99.0, 99.0)})
    text = section(written(tmp_path), SECOND)
    assert judgements(text)["a shrunken fast model is far better: B->F over F (rSum)"] == CONFIRMED
    assert cells(text, "F")[-2:] == ["363.0 ± 3.0", "450.1"]
    assert "I->F over" not in text, "what was not measured is not judged"


def test_variants_are_shown_apart_and_share_what_does_not_differ(tmp_path: Path) -> None:
    """Temperatures matter only where there is a teacher."""
    write(tmp_path, "F", made_up.flat(60.0))
    write(tmp_path, "B-F", made_up.flat(50.0), gains={"F": (-70.0, -50.0)})
    write(tmp_path, "B-F", made_up.flat(70.0), variant="factors", gains={"F": (50.0, 70.0)})
    write(tmp_path, "F", made_up.flat(99.0), variant="tuned", data="flickr8k-val")
    write(tmp_path, "B", made_up.flat(65.0), gains={"F": (20.0, 40.0)})
    page = written(tmp_path)
    assert len(judgements(section(page, FIRST))) == 1
    assert "factors" not in section(page, FIRST), "the variant has nothing else to say there"
    text = section(page, SECOND)
    paper, factors = text.split("read as factors")
    claim = "a shrunken fast model is far better: B->F over F (rSum)"
    assert (judgements(paper)[claim], judgements(factors)[claim]) == (NOT_CONFIRMED, CONFIRMED)
    assert cells(factors, "F")[-2] == cells(paper, "F")[-2] == "360.0"
    assert "contrastive" not in text, "what was measured on val chooses, and is not shown"


def test_words_say_whether_shrinking_helped_and_which_runs_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "F", made_up.flat(60.0))
    write(tmp_path, "B", made_up.flat(70.0))
    write(tmp_path, "B-F", made_up.flat(65.0), gains={"F": (20.0, 40.0), "B": (-40.0, -20.0)})
    write(tmp_path, "I-B", made_up.flat(65.0), gains={"B": (-40.0, -20.0)})
    write(tmp_path, "I-B-F", made_up.flat(60.5), gains={"F": (-3.0, 9.0)})
    text = " ".join(section(written(tmp_path), SECOND).split())
    assert "Shrinking helped B-F (+30.0 [+20.0, +40.0] rSum over F)." in text
    assert "Shrinking did harm to I-B (-30.0 [-40.0, -20.0] rSum over B)." in text
    assert "Whether shrinking helped is undecided for I-B-F (+3.0 [-3.0, +9.0] rSum over F)." in text
    assert "Beside their teachers: B-F -30.0 [-40.0, -20.0] over B, I-B-F -27.0" in text
    assert "Not measured yet: I32, I-F; `python -m replication.paper3 --runs I32,I-F --variant paper --seeds 0`" in text
    assert "Shrinking" not in section(written(tmp_path), FIRST)


def test_what_a_teacher_gives_stands_beside_what_another_loss_gives(tmp_path: Path) -> None:
    write(tmp_path, "F", made_up.flat(30.0))
    write(tmp_path, "B-F", made_up.flat(50.0), variant="factors", gains={"F": (119.0, 121.0)})
    assert "the contrastive" not in section(written(tmp_path), SECOND), "there is nothing to compare with"
    write(tmp_path, "F", made_up.flat(52.0), variant="tuned")
    words = " ".join(section(written(tmp_path), SECOND).split())
    assert "from 180.0 to 300.0 rSum; the contrastive loss takes it to 312.0" in words
    assert "As printed, a student" not in words
    write(tmp_path, "B-F", made_up.flat(5.0), gains={"F": (-151.0, -149.0)})
    assert "0.92 % at best, where even chances are 0.78 %" in " ".join(section(written(tmp_path), SECOND).split())


def test_earlier_runs_with_a_trained_tower_are_shown_apart_and_not_counted(tmp_path: Path) -> None:
    assert shrunken.TOWER not in written(tmp_path)
    for variant, shrunk in (("paper", 20.0), ("tuned", 58.0)):
        write(tmp_path, "F", made_up.flat(60.0), variant=variant, folder="paper3-tower")
        gains = {"F": (6 * shrunk - 365, 6 * shrunk - 355)}
        write(tmp_path, "B-F", made_up.flat(shrunk), variant=variant, gains=gains, folder="paper3-tower")
    page = written(tmp_path)
    text = section(page, shrunken.TOWER)
    assert cells(text, "paper", "B-F") == ["20.0", "20.0", "120.0", "-240.0 [-245.0, -235.0]", "–"]
    assert cells(text, "tuned", "F") == ["60.0", "60.0", "360.0", "–", "–"]
    assert "*tuned*: Shrinking did harm to B-F (-12.0 [-17.0, -7.0] rSum over F)." in text
    assert "400 million pairs" in " ".join(text.split())
    assert all("Left out" in section(page, title) for title in TITLES), "they are no runs of the paper's setting"
    assert page.count("None of its findings was measured yet.") == 4


def test_the_time_of_scoring_stands_beside_the_papers(tmp_path: Path) -> None:
    write_speed(tmp_path)
    text = section(written(tmp_path), inflated.SPEED)
    assert cells(text, "base, float16", "32 x 32") == ["0.400", "0.500", "1.50", "82"]
    assert cells(text, "fast, float16", "1 x 1")[-1] == "0.4"
    assert set(judgements(text).values()) == {CONFIRMED}
    assert "+7.0" in text, "base takes eight times as long as fast"


def test_the_figure_has_a_line_for_each_way_of_training(tmp_path: Path) -> None:
    for run in ("L1", "L2", "L4", "L8", "L16", "B", "B-L1", "B-L8", "I16", "I64", "I-B", "I-B-F"):
        write(tmp_path, run, made_up.flat(60.0))
    text = section(written(tmp_path), FIGURE)
    assert "](plots/fragments.svg)" in text
    svg = (tmp_path / "docs/plots/fragments.svg").read_text()
    assert all(label in svg for label in ("as it is", "shrunken", "inflated and shrunken"))
    assert cells(text, "B-L8")[-1] == pytest.approx(str(round(sum(COCO["B-L8"]), 1)))
    assert "The figure is of" not in text
    for length in (1, 2, 8):
        write(tmp_path, f"B-L{length}", made_up.flat(65.0), variant="factors")
    text = section(written(tmp_path), FIGURE)
    assert "The figure is of the variant *factors*." in text
    assert (tmp_path / "docs/plots/fragments.svg").read_text() != svg


def test_the_findings_of_paper_3_are_counted_apart(tmp_path: Path) -> None:
    write_speed(tmp_path)
    page = written(tmp_path)
    assert "2 were measured: 2 confirmed" in page.replace("\n", " ")
    assert "None of its findings was measured yet." in page, "paper 1"


def test_the_default_cascade_is_shown_beside_the_others(tmp_path: Path) -> None:
    assert "Left out: `python -m benchmarks.cascade`" in section(written(tmp_path), "The default cascade")
    recalls = {"R@1": 50.0, "R@5": 70.0, "R@10": 80.0}

    def row(late: int, value: float, alone: int) -> dict[str, Any]:
        gain = {"sum": {"value": value, "low": value - 1, "high": value + 1}}
        found = {"late": late, "rerank": 20, "ms": 100.0 + late, "text_to_image": recalls}
        return found | {"alone": {"rerank": alone, "ms": 100.0, "text_to_image": recalls, "gain": gain}}

    content = {"rows": [row(0, 0.0, 20), row(50, 2.0, 22), row(100, -3.0, 23)], "chosen": {"late": 50, "rerank": 20}}
    sums = [{"late": 50, "rerank": k, "weight": 40.0, "gain": {"value": v, "low": v - 1, "high": v + 1}}
            for k, v in ((10, 0.5), (20, 1.5))]  # fmt: skip
    content |= {"questions": 1000, "items": 4500, "commit": "0" * 40, "machine": made_up.MACHINE, "added": sums}
    (tmp_path / "results").mkdir()
    (tmp_path / "results/cascade.json").write_text(json.dumps(content))
    text = section(written(tmp_path), "The default cascade")
    assert cells(text, "50", "20") == ["150", "50.0", "70.0", "80.0", "22", "+2.0 [+1.0, +3.0]"]
    assert list(judgements(text).values()) == [CONFIRMED, NOT_CONFIRMED]
    assert "by late@50 and match@20" in text.replace("\n", " ")
    told = "at best +1.5 [+0.5, +2.5] over as many matched without it, at late@50 and match@20; of 2 cascades 1 have"
    assert told in text.replace("\n", " ")
