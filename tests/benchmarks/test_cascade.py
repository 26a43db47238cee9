"""The choice of a default cascade: ranks are those of real searches, and the choice follows from the numbers."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.scripts import BENCHMARKS, script
from server.samples import picture
from sightline.bundle import Bundle
from sightline.bundle.model import Defaults
from sightline.bundle.spec import read_spec
from sightline.collection import Collection
from sightline.datasets import Record
from sightline.media import ImageBytes
from sightline.registry.loader import locate
from sightline.retrieval.cascade import Cascade
from sightline.retrieval.costs import Costs
from sightline.retrieval.plan import Plan
from sightline.retrieval.query import ask

TEXTS = ["a red dog", "two cats", "a child on the grass", "blue water", "a man with a ball", "snow"]


@pytest.fixture(scope="module")
def script_() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        module = script("benchmarks.cascade")
        patch.setattr(module, "LATES", (4, 8))
        patch.setattr(module, "RERANKS", (2, 3))
        patch.setattr(module, "MORE", 2)
        yield module


def record(number: int, *captions: str) -> Record:
    return Record(str(number), ImageBytes(f"{number}.png", picture(number)), {"en": captions})


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cascade")


@pytest.fixture(scope="module")
def collection(script_: ModuleType, work: Path, tiny_bundle: Path) -> Iterator[Collection]:
    records = [record(number, text, "a dog") for number, text in enumerate(TEXTS)]
    bundle = Bundle.open(tiny_bundle)
    at = script_.gallery(records, [record(number) for number in range(6, 12)], bundle, work)
    with Collection.open(at, bundle) as found:
        yield found


@pytest.fixture(scope="module")
def cascade(collection: Collection) -> Cascade:
    return Cascade(collection.model, collection.store, "images", Costs("made up"))


def asked_of(script_: ModuleType, collection: Collection) -> Any:
    return script_.questions(collection, [record(number, text, "a dog") for number, text in enumerate(TEXTS)], 1)


@pytest.fixture(scope="module")
def judged(script_: ModuleType, collection: Collection, cascade: Cascade, work: Path) -> Any:
    return script_.judge(cascade, asked_of(script_, collection), work / "judged.jsonl")


def test_a_question_is_about_its_own_picture(script_: ModuleType, collection: Collection) -> None:
    asked = asked_of(script_, collection)
    assert [question.text for question in asked] == TEXTS
    for number, question in enumerate(asked):
        assert collection.item(question.right).files[0].path == f"asked/{number:05}.jpg"
    assert len(collection) == 12


@pytest.mark.parametrize(("late", "rerank"), [(0, 2), (0, 5), (4, 3), (8, 2), (8, 0)])
@pytest.mark.parametrize("joined", [Defaults(), Defaults(fusion="logit_add", weight=20.0)])
def test_ranks_are_those_of_a_real_search(
    judged: Any, cascade: Cascade, late: int, rerank: int, joined: Defaults
) -> None:
    for number, text in enumerate(TEXTS):
        plan = Plan(12, late, rerank, fusion=joined.fusion, weight=joined.weight)
        rank = 1 + cascade.run(ask(text), plan).candidates.ids.tolist().index(judged.right[number])
        expected = rank if rank <= 8 else np.inf  # beyond the candidates that were judged
        assert judged.ranks(late, rerank, joined)[number] == expected


def test_added_to_a_cosine_that_weighs_more_late_interaction_changes_less(script_: ModuleType, judged: Any) -> None:
    alone = judged.ranks(0, 3, Defaults())
    assert judged.ranks(8, 3, Defaults(), 1e6).tolist() == alone.tolist()
    assert judged.ranks(8, 3, Defaults()).tolist() != alone.tolist()
    for row in script_.added(judged, Defaults()):
        found = judged.ranks(row["late"], row["rerank"], Defaults(), row["weight"])
        rival = judged.ranks(0, row["rerank"], Defaults())
        more = sum(np.mean(found <= k) - np.mean(rival <= k) for k in (1, 5, 10))
        assert row["gain"]["value"] == pytest.approx(100 * more, abs=0.01)


def test_what_was_judged_is_not_judged_again(
    script_: ModuleType, collection: Collection, cascade: Cascade, judged: Any, work: Path, tmp_path: Path
) -> None:
    lines = (work / "judged.jsonl").read_text().splitlines(keepends=True)
    kept = tmp_path / "judged.jsonl"
    kept.write_text("".join(lines[:4]) + lines[4][:20])  # ended in the midst of the fourth
    asked, noted = asked_of(script_, collection), []
    with pytest.MonkeyPatch.context() as patch:
        real = script_._judged
        patch.setattr(script_, "_judged", lambda own, text: noted.append(text) or real(own, text))
        again = script_.judge(cascade, asked, kept)
    assert noted == TEXTS[3:]
    np.testing.assert_allclose(again.late, judged.late, atol=1e-6)
    assert again.items.tolist() == judged.items.tolist()
    kept.write_text('{"model": "another"}\n')
    with pytest.raises(SystemExit, match="another model"):
        script_.judge(cascade, asked, kept)


def test_every_stage_costs_what_it_was_measured_to_cost(script_: ModuleType, cascade: Cascade) -> None:
    stages = script_.costs(cascade, TEXTS[:2])
    assert set(stages["interact"]) == {0, 4, 8}
    assert set(stages["match"]) == {2, 3}
    assert stages["interact"][0] == 0 < stages["interact"][8]
    made_up = {"encode": 10.0, "retrieve": 1.0, "interact": {0: 0.0, 4: 5.0}, "match": {2: 20.0, 3: 30.0}}
    assert script_.milliseconds(made_up, 4, 3) == 46
    assert script_.milliseconds(made_up, 0, 0) == 11
    assert script_.milliseconds(made_up, 0, 5) == pytest.approx(61)


def test_at_equal_time_matching_alone_may_match_more(script_: ModuleType, judged: Any) -> None:
    stages = {"encode": 1.0, "retrieve": 1.0, "interact": {0: 0.0, 4: 10.0, 8: 25.0}, "match": {2: 20.0, 3: 30.0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script_, "Defaults", lambda: Defaults(rerank=3))
        found = {(row["late"], row["rerank"]): row for row in script_.rows(judged, stages, Defaults())}
    assert found[4, 2]["alone"]["rerank"] == 3
    assert found[8, 3]["alone"]["rerank"] == 5
    assert found[0, 2]["alone"]["rerank"] == 2
    assert found[0, 2]["alone"]["gain"]["sum"] == {"value": 0, "low": 0, "high": 0}
    for row in found.values():
        assert row["alone"]["ms"] <= row["ms"]


def test_a_gain_is_of_the_same_questions_with_an_interval_that_holds_it(script_: ModuleType) -> None:
    before = np.tile([2.0, 1, 20, 7], 50)
    after = np.where(np.arange(200) < 60, 1.0, before)
    found = script_.gain(before, after, np.arange(200))
    assert found["R@1"]["value"] == pytest.approx(100 * ((after == 1).mean() - (before == 1).mean()))
    assert found["sum"]["value"] == pytest.approx(sum(found[f"R@{k}"]["value"] for k in (1, 5, 10)), abs=1e-2)
    assert 0 < found["sum"]["low"] < found["sum"]["value"] < found["sum"]["high"]


def row(late: int, rerank: int, ms: float, first: float, low: float) -> dict[str, Any]:
    halves = {"first_half": {"sum": {"value": first}}, "second_half": {"sum": {"value": low + 1, "low": low}}}
    return {"late": late, "rerank": rerank, "ms": ms, "over_usual": halves}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([row(100, 20, 101, 2.0, 0.5), row(50, 10, 60, 1.0, 0.9)], (100, 20)),
        ([row(100, 20, 101, 2.0, -0.1), row(50, 10, 60, 1.0, 0.9)], (0, 20)),  # the best is tried, and no second
        ([row(400, 30, 160, 9.0, 8.0), row(50, 10, 60, 1.0, 0.9)], (50, 10)),  # what takes longer is no rival
        ([row(50, 10, 60, -1.0, 3.0)], (0, 20)),
    ],
)
def test_the_better_half_by_half_in_no_more_time_is_chosen(
    script_: ModuleType, others: list[dict[str, Any]], expected: tuple[int, int]
) -> None:
    assert script_.chosen({"rows": [row(0, 20, 100, 0.0, 0.0), *others]}) == expected


def test_what_was_chosen_is_written_into_a_bundle_and_used(
    script_: ModuleType, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    result = tmp_path / "cascade.json"
    result.write_text(json.dumps({"rows": [row(0, 20, 100, 0.0, 0.0), row(100, 15, 90, 2.0, 0.5)]}))
    monkeypatch.setattr("sys.argv", ["cascade.py", "--write", str(bundle), "--json", str(result)])
    script_.main()
    opened = Bundle.open(bundle)
    assert opened.spec == dataclasses.replace(read_spec(tiny_bundle), defaults=Defaults(100, 15))
    assert opened.sha256 == Bundle.open(tiny_bundle).sha256, "collections stay as they are"
    assert Plan().stages(opened) == (100, 15)
    assert Plan(rerank=0).stages(opened) == (0, 0), "the quickest way stays the quickest"
    assert Plan(rerank=20).stages(opened) == (0, 20)
    assert Plan(late=5).stages(opened) == (5, 15)
    assert Plan(late="all", rerank=3).stages(opened) == ("all", 3)
    assert Plan(budget_ms=50).stages(opened) == (100, 100)
    assert Plan().stages(Bundle.open(tiny_bundle)) == (0, 20)


def test_the_model_that_ships_has_the_cascade_that_was_measured_to_be_better(script_: ModuleType) -> None:
    result = BENCHMARKS / "results" / "cascade.json"
    expected = script_.chosen(json.loads(result.read_text())) if result.is_file() else (0, 20)
    defaults = read_spec(locate("default")).defaults
    assert (defaults.late, defaults.rerank) == expected
