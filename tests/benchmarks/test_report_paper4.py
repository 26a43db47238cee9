"""The part of the results page that is about paper 4: made of its result files, and honest where they are not there."""

import json
from pathlib import Path
from typing import Any

from benchmarks import made_up
from benchmarks.test_report import cells, judgements, section, written
from replication.report import pretrained
from replication.report.estimates import CONFIRMED, NOT_CONFIRMED
from replication.report.results import WAYS, System

TITLES = [pretrained.TASKS, pretrained.LARGER, pretrained.LANGUAGES]
FIRST = "pre-training with CMR alone helps: over none (mR)"


def write(
    root: Path,
    run: str,
    value: float,
    seed: int = 0,
    start: str = "scratch",
    gains: dict[str, tuple[float, float]] | None = None,
    **more: Any,
) -> None:
    """Write the file of one run whose recalls have a value on the test set, half of it and a third in others."""
    over = {other: {"rSum": (low + high) / 2, "low": low, "high": high} for other, (low, high) in (gains or {}).items()}
    content: dict[str, Any] = {"experiment": "paper4", "run": run, "start": start, "seed": seed, "gain_over": over}
    costs = [{"steps": 3000, "seconds": 1.0}] * (run != "none") + [{"steps": 1700, "seconds": 1.0}]
    for gallery, part, distractors in (("test", 1, 0), ("full", 2, 7000), ("everything", 3, 19_500)):
        found = made_up.row(System("BE"), made_up.flat(value / part))
        found |= {"mR": value / part, "distractors": distractors}
        found["ci95"]["mR"] = [value / part - 1, value / part + 1]
        for way in WAYS:
            found[way] |= {"R@20": value / part, "R@50": value / part}
        content[gallery] = found
    _put(root, f"{run}-{start}-seed{seed}", {**content, "training": costs, **more})


def _put(root: Path, name: str, content: dict[str, Any]) -> None:
    folder = root / "results/paper4"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({**content, "commit": "0" * 40, "machine": made_up.MACHINE}))


def test_what_is_not_there_is_left_out_with_the_command_that_makes_it(tmp_path: Path) -> None:
    page = written(tmp_path)
    for title in TITLES:
        assert "Left out: `python -m replication.paper4 --runs" in section(page, title), title


def test_a_gain_is_told_in_mean_recall_and_judged_by_the_same_queries(tmp_path: Path) -> None:
    write(tmp_path, "none", 60.0)
    write(tmp_path, "cmr", 62.0, gains={"none": (6.0, 18.0)})
    text = section(written(tmp_path), pretrained.TASKS)
    assert f"| {FIRST} | +1.4 | +2.0 [+1.0, +3.0] | **{CONFIRMED}** |" in text
    assert cells(text, "CMR") == ["62.0"] * 7
    assert "Not measured: CMR, VMLM; CMR, SMRM; CMR, MLM, MRM; CMR, VMLM, SMRM." in text.replace("\n", " ")
    assert "Ours took 3,000 steps, and 1,700 to fine-tune." in text.replace("\n", " ")


def test_runs_that_began_otherwise_have_a_table_of_their_own(tmp_path: Path) -> None:
    for start, gain in (("scratch", 12.0), ("minilm", -12.0)):
        write(tmp_path, "none", 60.0, start=start)
        write(tmp_path, "cmr", 60.0 + gain / 6, start=start, gains={"none": (gain - 1, gain + 1)})
    text = section(written(tmp_path), pretrained.TASKS)
    scratch, minilm = text.split("begin with the six layers of MiniLM.")
    assert (judgements(scratch)[FIRST], judgements(minilm)[FIRST]) == (CONFIRMED, NOT_CONFIRMED)
    assert cells(minilm, "CMR")[-1] == "58.0"


def test_larger_galleries_have_their_sizes_and_the_papers_mean_beside_the_same_run(tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path, "vmlm-smrm", 60.0 + seed, seed)
        write(tmp_path, "none", 50.0, seed)
        write(tmp_path, "none", 80.0, seed, start="minilm")
    text = section(written(tmp_path), pretrained.LARGER)
    half = "30.2 ± 0.4"
    assert cells(text, "scratch", "CMR, VMLM, SMRM", "all splits") == ["8,000", *[half] * 7, "70.2"]
    assert cells(text, "scratch", "none", "all splits")[-2:] == ["25.0 ± 0.0", "–"]
    assert cells(text, "minilm", "none", "all splits")[-2:] == ["40.0 ± 0.0", "–"]
    assert cells(text, "scratch", "none", "and COCO")[0] == "20,500"


def test_languages_have_a_row_and_a_translator_has_others(tmp_path: Path) -> None:
    own = {"mR_by_language": {"en": 60.0, "de": 50.0, "zh": 40.0}}
    trained = {"experiment": "paper4", "run": "languages", "start": "scratch", "seed": 0, "result": own, "training": []}
    _put(tmp_path, "languages-scratch-seed0", trained)
    text = section(written(tmp_path), pretrained.LANGUAGES)
    assert cells(text, "trained on all") == ["60.0", "50.0", "40.0", "50.0"]
    assert "Translate-test was not measured" in text.replace("\n", " ")
    write(tmp_path, "cmr", 60.0, translated={"mR_by_language": {"de": 30.0, "zh": 20.0}})
    text = section(written(tmp_path), pretrained.LANGUAGES)
    assert cells(text, "translated, CMR, scratch") == ["–", "30.0", "20.0", "25.0"]
    assert "was not measured" not in text
