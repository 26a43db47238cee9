"""The benchmarks of speed run on tiny models, and write what the table and the page read."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.scripts import script
from server.samples import picture
from sightline.datasets import Record
from sightline.media import ImageBytes

CAPTIONS = ("a red dog on the grass", "two cats in the snow", "a child with a ball")
PROVENANCE = {"experiment", "command", "commit", "data", "seed", "machine", "quick", "rows", "ratios"}
Run = Callable[..., dict[str, Any]]


def records(*_: object) -> list[Record]:
    return [Record(f"{n}", ImageBytes(f"{n}.png", picture(n)), {"en": CAPTIONS}) for n in range(4)]


@pytest.fixture
def run(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a script as a command on four made-up pictures; gives the result, of which the one line printed speaks."""

    def ran(module: ModuleType, *options: str, model: bool = True) -> dict[str, Any]:
        path = tmp_path / "folder" / "result.json"
        words = [*options, "--json", str(path)]
        if model:
            words += ["--model", str(request.getfixturevalue("tiny_bundle"))]
        monkeypatch.setattr("sys.argv", ["script.py", *words])
        monkeypatch.setenv("SIGHTLINE_DATA", "nowhere")
        monkeypatch.setattr(module, "read_all", records, raising=False)
        module.main()
        result: dict[str, Any] = json.loads(path.read_text())
        assert result.keys() >= PROVENANCE
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{result['experiment']}: ")
        assert all(what in line for what in result["ratios"])
        return result

    return ran


def test_ways_take_turns_and_the_first_round_does_not_count() -> None:
    told: list[str] = []
    ways = {"a": lambda: told.append("a"), "b": lambda: told.append("b") or 7.0}
    seconds = script("benchmarks.timing").in_turns(ways, 2)
    assert told == ["a", "b", "b", "a", "a", "b"]
    assert seconds["b"] == [7.0, 7.0], "a way may say what counts"
    assert len(seconds["a"]) == 2
    assert max(seconds["a"]) < 1


def test_matching_stands_beside_a_cross_encoder_that_reads_as_much(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: sightline[bench]")
    matching = script("benchmarks.matching")
    shape = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    monkeypatch.setattr(matching, "SHAPE", shape)
    monkeypatch.setattr(matching, "PAIRS", (3,))
    monkeypatch.setattr(matching, "ITEMS", 5)
    result = run(matching, "--quick", "--rounds", "1")
    assert result["positions"]["sightline"] == result["positions"]["cross_encoder"]
    (row,) = result["rows"]
    assert row["sightline"]["pairs_per_second"] == pytest.approx(3000 / row["sightline"]["p50_ms"])
    (ratio,) = result["ratios"].values()
    assert ratio == pytest.approx(row["cross_encoder"]["p50_ms"] / row["sightline"]["p50_ms"])


def test_matching_goes_on_without_the_peer_and_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    matching = script("benchmarks.matching")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setattr(matching, "PAIRS", (3,))
    monkeypatch.setattr(matching, "ITEMS", 5)
    result = run(matching, "--rounds", "1")
    assert result["rows"][0]["cross_encoder"] == "sentence-transformers is not installed"
    assert result["rows"][0]["sightline"]["p50_ms"] > 0
    assert result["ratios"] == {}


def test_end_to_end_is_measured_cold_and_warm_beside_a_plain_script(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_to_end = script("benchmarks.end_to_end")
    tower = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    monkeypatch.setattr(end_to_end, "TOWER", tower)
    (tmp_path / "plain.py").write_text("print('instead of one that loads torch')")
    monkeypatch.setattr(end_to_end, "SCRIPT", tmp_path / "plain.py")
    result = run(end_to_end, "--items", "40", "--runs", "1", "--rounds", "2", "--photos", "2")
    rows = {(row["start"], row["way"]): row for row in result["rows"]}
    ways = ("sightline, none matched", "sightline, 20 matched", "plain script")
    assert set(rows) == {(start, way) for start in ("cold", "warm") for way in ways}
    stages = {matched: rows["warm", f"sightline, {matched} matched"]["stages_ms"] for matched in ("none", "20")}
    assert stages["none"]["match"] == 0 < stages["20"]["match"]
    assert min(stages["20"][stage] for stage in ("encode", "retrieve", "http")) > 0
    quick = "cold command, none matched, times as quick as a plain script"
    assert result["ratios"][quick] == pytest.approx(
        rows["cold", "plain script"]["p50_seconds"] / rows["cold", "sightline, none matched"]["p50_seconds"]
    )


def test_table_4_follows_from_the_rates_of_a_few_pictures(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = script("benchmarks.evaluation")
    for name, value in {"IMAGES": 8, "CAPTIONS": 40, "BLOCK": 10}.items():
        monkeypatch.setattr(evaluation, name, value)
    monkeypatch.setattr(evaluation.table4, "read_all", records)
    result = run(evaluation, "--quick", "--photos", "6")
    assert result["rates"]["measured_on"] == {"images": 6, "captions": 18, "pairs": 108}
    rates = evaluation.table4.Rates(images=10.0, captions=100.0, pairs=1000.0, measured_on={})
    assert rates.seconds(1000, ranking=2.0) == {"embed": 152.0, "rerank 20": 272.0, "match all": 5150.0}
    (small, large) = evaluation.table4.extrapolated(rates, product_seconds=50.0)
    assert small["seconds"]["embed"] == 152.0
    assert large["seconds"]["embed"] == 500 + 250 + 50
    assert "evaluation of 1,000 images, rerank 20, times as quick as paper 1 on a V100" in result["ratios"]


def test_training_is_measured_at_once_and_in_chunks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    training = script("benchmarks.training")
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {"image_size": 28, "patch_size": 4, "projection_dim": 8}
    monkeypatch.setattr(training, "SMALL", dataclasses.replace(training.SMALL, vision=tower | sizes, text=tower))

    really = subprocess.run

    def in_this_process(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if "--way" not in command:
            return really(command, **options)
        way, batch = command[command.index("--way") + 1], int(command[command.index("--batch") + 1])
        found = training.run(dataclasses.replace(training.SMALL, batch=batch), training.WAYS[way], 1, "cpu")
        return subprocess.CompletedProcess(command, 0, json.dumps(found | {"MB": found["MB"] + 1}))

    monkeypatch.setattr(training.subprocess, "run", in_this_process)
    result = run(training, "--batch", "66", "--steps", "1", "--rounds", "1", model=False)
    whole, chunked = result["rows"]
    assert ("chunk" in whole, chunked["chunk"]) == (False, 64)
    ratio = result["ratios"]["steps a second in chunks, times at once"]
    assert ratio == pytest.approx(whole["seconds"] / chunked["seconds"])
    rows, ratios = training.summary(training.BUNDLED, {"in chunks": [{"seconds": 2.0, "MB": 5.0}]})
    assert rows[0]["note"] == "does not fit into memory"
    assert rows[1]["steps_per_second"] == 0.5
    assert ratios == {}


def test_growth_is_fitted_for_every_stage(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = script("benchmarks.growing")
    for name, value in {"MATCHED": (2, 4), "INTERACTED": (3, 6), "KEPT": 12, "TEST_SETS": (4, 8)}.items():
        monkeypatch.setattr(growing, name, value)
    result = run(growing, "--quick", "--pictures", "3,6", "--items", "20,40", "--photos", "2")
    assert [row["stage"] for row in result["rows"]] == [
        *("index", "index, nothing changed", "open", "retrieve", "compact", "match", "interact", "rank a test set")
    ]
    promised = {target.ratio for target in script("benchmarks.pages.targets").TARGETS if target.experiment == "growing"}
    assert set(result["ratios"]) == promised
    (row,) = growing.fitted([("a", "b", 10, 1.0), ("a", "b", 100, 10.0), ("a", "b", 1000, 100.0)])
    assert row["exponent"] == pytest.approx(1)


def test_a_floor_is_what_takes_longer_of_bytes_and_operations(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    floors = script("benchmarks.floors")
    assert floors.transformer(1, 2, 4, 8) == 2 * (2 * (4 * 16 + 2 * 32) + 4 * 4)
    monkeypatch.setattr(floors, "bandwidth", lambda *_, **__: 1e9)
    monkeypatch.setattr(floors, "rate", lambda *_: 1e12)
    monkeypatch.setattr(floors, "WORK", (floors.Work("read", 1e6, 1e6), floors.Work("count", 1e3, 1e10)))
    result = run(floors, model=False)
    assert [(row["floor_ms"], row["bound_by"]) for row in result["rows"]] == [(1, "bytes"), (10, "operations")]
