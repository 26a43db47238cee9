"""The results page: it is what its inputs make it, and its verdicts follow from the numbers."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import replication.results_page as report
from benchmarks import made_up
from replication.report import paper
from replication.report.estimates import CONFIRMED, NOT_CONFIRMED, UNDECIDED, UNMEASURED, Estimate, verdict
from replication.report.paper import BE, CE, JOINT, SEP, SYSTEMS
from replication.report.results import System

ROOT = report.ROOT
DOCS = ROOT / "docs"


def written(root: Path) -> str:
    """The page made of the results below `root`."""
    return str(report.page(root, root / "results", root / "bundle", root / "docs"))


def section(page: str, title: str) -> str:
    (text,) = re.findall(rf"^###? {re.escape(title)}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return str(text)


def judgements(text: str) -> dict[str, str]:
    """The verdicts of a section, by their claim."""
    return dict(re.findall(r"^\| (.+?) \| .*? \| \*\*(.+?)\*\* \|$", text, re.MULTILINE))


def cells(text: str, *first: str) -> list[str]:
    """The cells of the row that begins with these."""
    (row,) = re.findall(rf"^\| {re.escape(' | '.join(first))} \| (.*) \|$", text, re.MULTILINE)
    return [str(cell) for cell in row.split(" | ")]


def drawing(path: Path) -> tuple[str, list[float]]:
    """An SVG apart from the ids in it: its text without numbers, and its numbers."""
    text = re.sub(r'(id="|url\(#|href="#)\w+', r"\1", path.read_text())
    return re.sub(r"-?\d+(\.\d+)?", "#", text), [float(value) for value in re.findall(r"-?\d+(?:\.\d+)?", text)]


def test_the_committed_page_and_plots_are_what_the_results_make_them(tmp_path: Path) -> None:
    made = report.page(ROOT, ROOT / "benchmarks" / "results", ROOT / "bundles" / "default", tmp_path)
    assert made == (DOCS / "results.md").read_text(encoding="utf-8"), "run `make results`, and commit what it writes"
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert names == {path.name for path in (DOCS / "plots").glob("*.svg")} == set(re.findall(r"\(plots/(.+?)\)", made))
    for name in names:
        (skeleton, numbers), (committed, expected) = drawing(tmp_path / "plots" / name), drawing(DOCS / "plots" / name)
        assert skeleton == committed
        assert numbers == pytest.approx(expected, abs=0.05)


def test_every_file_that_the_page_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (DOCS / "results.md").read_text(encoding="utf-8"))
    assert len(links) > 5
    for link in links:
        assert (DOCS / link).is_file(), link


def test_plots_come_out_the_same_each_time(tmp_path: Path) -> None:
    results = ROOT / "benchmarks" / "results"
    drawn = []
    for name in ("once", "again"):
        report.page(ROOT, results, tmp_path, tmp_path / name)
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / name / "plots").iterdir()})
    assert drawn[0] == drawn[1]
    assert drawn[0]
    assert not any(b"<dc:date>" in svg for svg in drawn[0].values())


def test_without_any_results_every_section_says_that_it_is_left_out(tmp_path: Path) -> None:
    page = written(tmp_path)
    assert page.count("Left out:") == 25
    assert "None of its findings was measured yet." in page
    assert "There is no bundle" in page
    assert not re.search(r"\d\.\d ", page.replace("2103.11920", ""))


def test_the_papers_own_numbers_confirm_all_that_the_paper_says_of_its_tables(tmp_path: Path) -> None:
    full = {**paper.TABLE_1, **paper.TABLE_5, **paper.TABLE_8, **paper.TABLE_9}
    made_up.write(tmp_path / "results/paper1", "full", full)
    coco = {system: six for system, six in paper.TABLE_6.items() if system.variant == "coco"}
    made_up.write(tmp_path / "results/paper1", "coco", coco)
    page = written(tmp_path)
    compared = 0
    for title in ("Table 1: the systems", "Table 5: a larger gallery", "Table 6: trained on other pictures",
                  "Table 8: how many to rerank", "Table 9: adding the scores"):  # fmt: skip
        judged = judgements(section(page, title))
        assert len(judged) >= 3, title
        assert set(judged.values()) == {CONFIRMED}, judged
        for there, here in re.findall(r"\| (\S+) \| (\S+) \[.*?\] \| \*\*", section(page, title)):
            assert there == here
        for row in re.findall(r"^\| [A-Z].*\|$", section(page, title), re.MULTILINE):
            ours, theirs = row.strip("| ").split(" | ")[-2:]
            if re.fullmatch(r"\d+\.\d", theirs):
                compared += 1
                assert ours == theirs, row
    assert compared == sum(map(len, (paper.TABLE_1, paper.TABLE_5, paper.TABLE_6, paper.TABLE_8, paper.TABLE_9)))
    assert "23 were measured: 23 confirmed, 0 not confirmed, 0 undecided" in page.replace("\n", " ")


def seeds_of(root: Path, values: dict[System, list[float]], half: float = 1.0) -> str:
    """The page of runs in which every recall of a system is its value for that seed."""
    for seed in range(max(map(len, values.values()))):
        rows = {system: made_up.flat(own[seed]) for system, own in values.items() if seed < len(own)}
        for variant in {system.variant for system in rows}:
            chosen = {system: recalls for system, recalls in rows.items() if system.variant == variant}
            made_up.write(root / "results/paper1", f"{variant}-seed{seed}", chosen, seed, half)
    return written(root)


BEST = "JOINT+COOP is the best: over SEP+COOP (rSum)"


@pytest.mark.parametrize(
    ("joint", "sep", "expected"),
    [
        ([62.0, 63.0, 61.0], [60.0, 61.0, 59.1], CONFIRMED),
        ([60.0, 61.0, 59.1], [62.0, 63.0, 61.0], NOT_CONFIRMED),
        ([62.0, 59.0, 63.0], [60.0, 61.0, 59.0], UNDECIDED),
        ([62.5], [60.0], CONFIRMED),
        ([61.5], [60.0], UNDECIDED),
        ([60.0], [62.5], NOT_CONFIRMED),
    ],
)
def test_a_verdict_follows_from_seeds_or_from_bootstrap_intervals(
    joint: list[float], sep: list[float], expected: str, tmp_path: Path
) -> None:
    page = seeds_of(tmp_path, {JOINT: joint, SEP: sep})
    judged = judgements(section(page, "Table 1: the systems"))
    assert judged[BEST] == expected
    assert judged["CE puts the right picture first more often than BE (t2i R@1)"] == UNMEASURED


def test_the_findings_are_counted_by_their_verdicts(tmp_path: Path) -> None:
    page = seeds_of(tmp_path, {JOINT: [60.0], SEP: [62.5]}).replace("\n", " ")
    assert "1 were measured: 0 confirmed, 1 not confirmed, 0 undecided" in page


def test_only_seeds_that_both_sides_have_are_compared(tmp_path: Path) -> None:
    page = seeds_of(tmp_path, {JOINT: [62.0, 70.0, 70.0], SEP: [61.9]})
    assert judgements(section(page, "Table 1: the systems"))[BEST] == UNDECIDED


def test_a_cell_is_the_mean_and_the_standard_deviation_over_seeds(tmp_path: Path) -> None:
    page = seeds_of(tmp_path, {BE: [60.0, 61.0, 65.0], CE: [50.0]})
    text = section(page, "Table 1: the systems")
    assert cells(text, "BE") == ["62.0 ± 2.6"] * 6 + ["372.0 ± 15.9", "538.2"]
    assert cells(text, "CE") == ["50.0"] * 6 + ["300.0", "552.0"]
    assert cells(text, "JOINT+COOP") == ["–"] * 7 + ["552.3"]


def test_on_par_allows_for_its_margin_and_no_more() -> None:
    assert verdict(Estimate({0: -1.0, 1: -1.1, 2: -0.9}), margin=2.0) == CONFIRMED
    assert verdict(Estimate({0: -1.0, 1: -1.1, 2: -0.9})) == NOT_CONFIRMED
    assert verdict(Estimate({0: -3.0, 1: -3.1, 2: -2.9}), margin=2.0) == NOT_CONFIRMED
    assert verdict(Estimate({0: 1.0})) == UNDECIDED  # one seed and no interval tells nothing


def test_the_interval_over_seeds_is_students() -> None:
    low, high = Estimate({0: 1.0, 1: 2.0, 2: 3.0}).interval or (0.0, 0.0)
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))


def test_differences_and_quotients_reach_from_worst_to_worst() -> None:
    own, other = Estimate({0: 10.0}, {0: (9.0, 12.0)}), Estimate({0: 5.0}, {0: (4.0, 6.0)})
    assert own.minus(other).interval == (3.0, 8.0)
    assert own.over(other).interval == (1.5, 3.0)
    assert own.times(2).minus(other) == Estimate({0: 15.0}, {0: (12.0, 20.0)})


def test_fewer_pictures_and_fewer_layers_have_a_table_a_plot_and_verdicts(tmp_path: Path) -> None:
    values = {system: [60.0, 61.0, 62.0] for system in SYSTEMS.values()}
    values |= {system.of("3k"): [50.0] for system in SYSTEMS.values()}
    values |= {system.of("1k"): [40.0] for system in SYSTEMS.values()}
    values |= {BE.of("1k"): [10.0], JOINT.of("1k"): [25.0]}
    values |= {system.of("half"): [54.0] for system in (BE, SEP, JOINT)} | {JOINT.of("half"): [58.0]}
    page = seeds_of(tmp_path, values)
    size = section(page, "Figure 3: fewer pictures to train on")
    assert cells(size, "BE") == ["60.0", "300.0", "366.0 ± 6.0"]
    assert set(judgements(size).values()) == {CONFIRMED}
    assert "](plots/data-size.svg)" in size
    svg = (tmp_path / "docs/plots/data-size.svg").read_text()
    assert all(name in svg for name in SYSTEMS)
    halved = section(page, "Figure 4: half of the layers")
    assert cells(halved, "BE") == ["366.0 ± 6.0", "324.0", "90.0"]
    assert cells(halved, "joint") == ["61.0 ± 1.0", "60.0"]
    assert judgements(halved)["JOINT+COOP is again the best: over BE (rSum)"] == CONFIRMED
    assert judgements(halved)["JOINT+COOP keeps around 90 %: above 85 (per cent)"] == CONFIRMED


def test_the_best_weight_of_a_sum_stands_against_the_matcher_alone(tmp_path: Path) -> None:
    values = {replace(SEP, fusion="add", weight=weight): [at] for weight, at in ((0.1, 50.0), (0.5, 70.0), (0.9, 40.0))}
    page = seeds_of(tmp_path, {SEP: [60.0], **values})
    judged = judgements(section(page, "Table 9: adding the scores"))
    assert judged["SEP+COOP: the matcher alone ranks best, over ADD (rSum)"] == NOT_CONFIRMED
    assert judged["SEP+COOP: the matcher alone ranks best, over NORM_ADD (rSum)"] == UNMEASURED


def test_two_files_that_disagree_about_a_run_are_refused(tmp_path: Path) -> None:
    made_up.write(tmp_path / "results/paper1", "one", {BE: made_up.flat(60.0)})
    made_up.write(tmp_path / "results/paper1", "same", {BE: made_up.flat(60.0)})
    written(tmp_path)
    made_up.write(tmp_path / "results/paper1", "other", {BE: made_up.flat(61.0)})
    with pytest.raises(SystemExit, match="disagree"):
        written(tmp_path)


def test_the_shipped_bundle_is_shown_with_its_results_and_its_calibration(tmp_path: Path) -> None:
    found: dict[str, Any] = {
        **made_up.row(BE, made_up.flat(71.5)),
        "model": "default",
        "data": "flickr8k-test",
        "lang": "en",
        "protocol": "karpathy",
    }
    gains = {"text_to_image": {"R@1": {"value": 1.25, "low": -0.5, "high": 2.0}}}
    measured = {"rows": [found], "gain_of_reranking": gains, "commit": "0" * 40, "machine": made_up.MACHINE}
    (tmp_path / "results/default").mkdir(parents=True)
    (tmp_path / "results/default/flickr8k.json").write_text(json.dumps(measured))
    (tmp_path / "bundle").mkdir()
    spec = {"results": [found | {"model": "of itself"}], "calibration": {"match": {"scale": 0.7123, "bias": -3.0}}}
    (tmp_path / "bundle/sightline.json").write_text(json.dumps(spec))
    text = section(written(tmp_path), "The bundle that ships")
    assert "| text to image | R@1 | +1.25 | [-0.50, +2.00] |" in text
    assert cells(text, "of itself")[-1] == "429.0"
    assert cells(text, "match") == ["0.712", "-3"]
    assert "results/default/flickr8k.json" in text
