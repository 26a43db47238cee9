"""Verdicts follow from intervals, and the papers' own numbers support what the papers claim."""

import json
from pathlib import Path
from typing import Any

import pytest

from replication.claims import HELD, NOT_HELD, NOT_MEASURED, NOT_TESTABLE, UNDECIDED, decide, judge, read_papers, tally
from replication.estimates import Estimate
from replication.systems import RECALLS, WAYS, Systems, read_systems


def row(recalls: list[float], half: float = 0.01) -> dict[str, Any]:
    """A row with six recalls, each known to ± `half`."""
    made: dict[str, Any] = {"rSum": sum(recalls), "ci95": {"rSum": [sum(recalls) - 6 * half, sum(recalls) + 6 * half]}}
    for metric, value in zip(RECALLS, recalls, strict=True):
        way, recall = metric.split()
        made.setdefault(WAYS[way], {})[recall] = value
        made["ci95"].setdefault(WAYS[way], {})[recall] = [value - half, value + half]
    return made


def of(**rsums: float) -> Systems:
    """Systems with six equal recalls that add up to the given rSum."""
    return Systems({name: {0: row([rsum / 6] * 6)} for name, rsum in rsums.items()})


@pytest.mark.parametrize(
    ("interval", "on_par", "verdict"),
    [
        ((0.1, 2.0), 0, HELD),
        ((-0.1, 2.0), 0, UNDECIDED),
        ((-2.0, -0.1), 0, NOT_HELD),
        ((-1.9, 1.9), 2.0, HELD),
        ((-1.9, 2.1), 2.0, UNDECIDED),
        ((2.1, 3.0), 2.0, NOT_HELD),
        ((-3.0, -2.1), 2.0, NOT_HELD),
        (None, 0, UNDECIDED),
    ],
)
def test_a_comparison_is_decided_by_its_interval(interval: Any, on_par: float, verdict: str) -> None:
    assert decide(Estimate({0: 5.0}, {0: interval} if interval else {}), on_par) == verdict


def test_the_best_system_is_above_every_other() -> None:
    paper = {"claims": [{"text": "A is best", "better": "A", "worse": ["B", "C"]}]}
    assert judge(paper, of(A=300, B=200, C=100))[0].verdict == HELD
    (found,) = judge(paper, of(A=300, B=200, C=400))
    assert found.verdict == NOT_HELD
    assert found.gain is not None
    assert found.gain.mean == pytest.approx(-100), "the comparison that speaks against it is shown"
    assert found.against == "over C"
    assert judge(paper, of(A=300, B=200))[0].verdict == NOT_MEASURED
    assert judge(paper, of(A=300, B=400))[0].verdict == NOT_HELD, "one better system is enough"
    assert judge(paper, of(A=300, B=300))[0].verdict == UNDECIDED, "it can no longer hold"


def test_the_comparison_shown_is_one_that_decides_the_claim() -> None:
    paper = {"claims": [{"text": "A is best", "better": "A", "worse": ["B", "C"]}]}
    seeds = {"A": (300, 300, 300), "B": (301, 301.1, 300.9), "C": (290, 310, 306)}
    systems = Systems({name: {seed: row([rsum / 6] * 6) for seed, rsum in enumerate(of)} for name, of in seeds.items()})
    (found,) = judge(paper, systems)
    assert found.verdict == NOT_HELD
    assert found.gain is not None
    assert found.gain.mean == pytest.approx(-1), "C is further ahead, but its interval decides nothing"


def test_a_claim_of_several_pairs_or_metrics_counts_once_and_needs_them_all() -> None:
    chain = {"claims": [{"text": "A over B over C", "pairs": [["A", "B"], ["B", "C"]]}]}
    assert [one.verdict for one in judge(chain, of(A=300, B=200, C=100))] == [HELD]
    assert [(one.verdict, one.against) for one in judge(chain, of(A=300, B=200, C=250))] == [(NOT_HELD, "B over C")]
    both = {"claims": [{"text": "", "better": "A", "worse": "B", "metric": ["t2i R@1", "i2t R@1"]}]}
    systems = Systems({"A": {0: row([50.0] * 6)}, "B": {0: row([40.0] * 3 + [60.0] * 3)}})
    assert judge(both, systems)[0].verdict == NOT_HELD
    both["claims"][0]["reported"] = [1.0, 2.0]
    assert judge(both, systems)[0].reported == 2.0, "the paper's gain in the metric that is shown"


def test_a_sum_of_recalls_leaves_out_the_others() -> None:
    systems = Systems({"A": {0: row([5.0, 6, 7, 8, 9, 10], 0.5)}, "B": {0: row([1.0, 1, 90, 1, 1, 90])}})
    assert systems.estimate("A", "R@1+R@5").by_seed == {0: 5 + 6 + 8 + 9}
    assert systems.estimate("A", "R@1+R@5").intervals == {0: (26, 30)}
    claim = {"text": "", "better": "A", "worse": "B", "metric": "R@1+R@5"}
    assert judge({"claims": [claim]}, systems)[0].verdict == HELD
    assert judge({"claims": [claim | {"metric": "rSum"}]}, systems)[0].verdict == NOT_HELD


def test_a_claim_is_not_testable_without_its_premise() -> None:
    first = {"id": "first", "text": "A over B", "better": "A", "worse": "B"}
    second = {"text": "A over C", "better": "A", "worse": "C", "premise": "first"}
    assert [one.verdict for one in judge({"claims": [first, second]}, of(A=300, B=200, C=100))] == [HELD, HELD]
    found = judge({"claims": [first, second]}, of(A=200, B=300, C=100))
    assert [one.verdict for one in found] == [NOT_HELD, NOT_TESTABLE]
    assert "A over B" in found[1].reason
    third = {"text": "A over D", "better": "A", "worse": "D"}
    assert tally([*found, *judge({"claims": [third]}, of(A=200))]) == [1, 0, 1, 0, 1, 1]


def test_a_share_is_compared_with_another_or_with_a_constant() -> None:
    systems = of(A=400, A_half=360, B=400, B_half=300)
    share = {"text": "", "better": "A_half / A", "at_least": 85.0}
    assert judge({"claims": [share]}, systems)[0].verdict == HELD
    assert judge({"claims": [share | {"at_least": 95.0}]}, systems)[0].verdict == NOT_HELD
    about = {"text": "", "better": "A_half / A", "about": 92.0, "on_par": 5.0}
    assert judge({"claims": [about]}, systems)[0].verdict == HELD
    assert judge({"claims": [about | {"about": 80.0}]}, systems)[0].verdict == NOT_HELD, "too high is not about 80 %"
    (found,) = judge({"claims": [{"text": "", "better": "A_half / A", "worse": "B_half / B"}]}, systems)
    assert found.gain is not None
    assert found.gain.mean == pytest.approx(15)


def test_the_interval_over_seeds_is_students() -> None:
    low, high = Estimate({0: 1.0, 1: 2.0, 2: 3.0}).interval or (0, 0)
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))


def test_only_seeds_that_both_sides_have_are_compared() -> None:
    apart = Estimate({0: 5.0, 1: 6.0}, {0: (4.0, 6.0)}).minus(Estimate({0: 1.0, 2: 9.0}, {0: (0.5, 2.0)}))
    assert apart.by_seed == {0: 4.0}
    assert apart.intervals == {0: (2.0, 5.5)}, "from worst to worst"


@pytest.mark.parametrize("paper", read_papers(), ids=lambda paper: paper["name"])
def test_the_papers_own_numbers_support_its_claims(paper: dict[str, Any]) -> None:
    whole = {name: six for name, six in paper.get("reported", {}).items() if len(six) == 6}
    systems = Systems({name: {0: row(six, half=0.001)} for name, six in whole.items()})
    claims = [{key: value for key, value in claim.items() if key != "not_testable"} for claim in paper["claims"]]
    wrong = [one for one in judge(paper | {"claims": claims}, systems) if one.verdict not in (HELD, NOT_MEASURED)]
    assert [one.claim["text"] for one in wrong] == []


@pytest.mark.parametrize("paper", read_papers(), ids=lambda paper: paper["name"])
def test_every_claim_is_of_known_systems_and_premises(paper: dict[str, Any]) -> None:
    texts = [claim["text"] for claim in paper["claims"]]
    assert len(texts) == len(set(texts)), "a claim is counted once"
    known = set()
    for claim in paper["claims"]:
        assert claim.keys() <= {"id", "text", "better", "worse", "pairs", "metric", "on_par", "at_least", "premise",
                                "about", "reported", "not_testable"}  # fmt: skip
        assert ("worse" in claim) + ("at_least" in claim) + ("about" in claim) + ("pairs" in claim) == 1
        assert "about" not in claim or claim["on_par"] > 0, "about needs a margin"
        assert ("better" in claim) != ("pairs" in claim)
        assert claim.get("premise", "") in known | {""}
        known.add(claim.get("id"))


def test_a_gain_from_a_table_without_r_at_10_is_compared_with_the_same_recalls() -> None:
    (paper,) = (paper for paper in read_papers() if paper["name"] == "paper2")
    sums = {claim["metric"] for claim in paper["claims"] if isinstance(claim.get("reported"), float)}
    assert sums == {"R@1+R@5"}, "Tables 3a and 3b have no R@10"


def write(folder: Path, name: str, **content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"seed": 0, **content}))


def test_runs_are_read_by_name_variant_and_folder_with_paired_gains(tmp_path: Path) -> None:
    gain = {"rSum": 12.0, "low": 11.0, "high": 13.0}
    write(tmp_path / "paper3", "F", run="F", variant="paper", result=row([20.0] * 6, 5.0), gain_over={})
    write(tmp_path / "paper3", "B-F", run="B-F", variant="kl", result=row([22.0] * 6, 5.0), gain_over={"F": gain})
    write(tmp_path / "paper3-parts", "F", run="F", variant="tuned", result=row([30.0] * 6), gain_over={})
    found = read_systems(tmp_path, "paper3")
    assert set(found.rows) == {"F", "B-F kl", "F tuned parts"}
    assert found.gain("B-F kl", "F").interval == (11.0, 13.0)
    assert found.gain("F", "B-F kl").interval == (-13.0, -11.0)
    assert found.gain("B-F kl", "F", "t2i R@1").interval == (-8.0, 12.0), "of one recall there is no paired one"


def test_a_gain_over_an_earlier_training_of_the_other_system_is_refused(tmp_path: Path) -> None:
    gain = {"rSum": 12.0, "low": 11.0, "high": 13.0}
    write(tmp_path / "paper3", "B", run="B", variant="paper", result=row([22.0] * 6), gain_over={"F": gain})
    with pytest.raises(SystemExit, match=r"B, seed 0: its gain over F was 12\.0"):
        read_systems(tmp_path, "paper3")
    write(tmp_path / "paper3", "F", run="F", variant="paper", result=row([21.0] * 6), gain_over={})
    with pytest.raises(SystemExit, match=r"was 12\.0, is 6\.00"):
        read_systems(tmp_path, "paper3")


def test_two_files_that_disagree_about_a_run_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "paper2", "one", run="base", result=row([20.0] * 6))
    write(tmp_path / "paper2", "two", run="base", result=row([21.0] * 6))
    with pytest.raises(SystemExit, match="base"):
        read_systems(tmp_path, "paper2")


def test_systems_of_paper_1_are_named_by_what_differs(tmp_path: Path) -> None:
    usual = {"row": "SEP+COOP", "stages": ["embed", "match@20"], "fusion": "ce", "weight": None, "distractors": 0}
    rows = [usual, usual | {"stages": ["embed", "match@10"]}, usual | {"fusion": "add", "weight": 0.5},
            usual | {"distractors": 9}]  # fmt: skip
    write(tmp_path / "paper1", "one", variant="half", rows=[one | row([20.0] * 6) for one in rows])
    differences = ("", " k=10", " add 0.5", " enlarged")
    assert list(read_systems(tmp_path, "paper1").rows) == [f"SEP+COOP half{one}" for one in differences]
