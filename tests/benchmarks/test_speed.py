"""Every speed benchmark runs on a tiny model and made-up photos, and its ratios follow from what it measured."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import growing, indexing, samples, scan, timing, training
from benchmarks.bench import TARGETS
from benchmarks.evaluation import Rates, table4
from benchmarks.provenance import ROOT
from sightline.media import ImageFile, Preprocess
from sightline.media.pixels import open_for_model

TOWER = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
IMAGE_TOWER = TOWER | {"image_size": 32, "patch_size": 16, "projection_dim": 8}
PROVENANCE = {"experiment", "command", "commit", "data", "seed", "machine", "quick", "rows", "ratios"}
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a script without SIGHTLINE_DATA; patches: constants of its module."""

    def ran(name: str, *options: str, model: bool = True, **patches: Any) -> dict[str, Any]:
        module = importlib.import_module(f"benchmarks.{name}")
        for constant, value in patches.items():
            monkeypatch.setattr(module, constant, value)
        path = tmp_path / "folder" / "result.json"
        words = ["--model", str(request.getfixturevalue("tiny_bundle"))] if model else []
        monkeypatch.setattr("sys.argv", [f"{ROOT}/benchmarks/{name}.py", *options, *words, "--json", str(path)])
        monkeypatch.delenv("SIGHTLINE_DATA", raising=False)
        monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")
        module.main()
        result: dict[str, Any] = json.loads(path.read_text())
        assert result.keys() >= PROVENANCE
        assert result["command"].startswith(f"python -m benchmarks.{name} ")
        assert all(np.isfinite(value) for value in result["ratios"].values())
        return result

    return ran


def test_alternatives_take_turns_and_the_warm_up_does_not_count() -> None:
    told: list[str] = []
    ways: dict[str, Any] = {"a": lambda: told.append("a"), "b": lambda: told.append("b") or 7.0}
    seconds = timing.in_turns(ways, 2)
    assert told == ["a", "b", "b", "a", "a", "b"]
    assert seconds["b"] == [7.0, 7.0], "one may say what counts"
    assert len(seconds["a"]) == 2
    assert max(seconds["a"]) < 1


def test_indexing_is_compared_with_one_core_and_a_plain_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_this_process(module: str, *words: str, cores: int) -> dict[str, float]:
        way, folder, model = words[1::2]
        return indexing.measured(way, Path(folder), model)

    monkeypatch.setattr(indexing, "in_a_process", in_this_process)
    result = run("indexing", "--quick", "--photos", "3", TOWERS={"loop": IMAGE_TOWER})
    rates = {row["way"]: row["photos_per_second"] for row in result["rows"]}
    assert result["data"] == ["made up"]
    assert result["ratios"][TARGETS[0].ratio] == pytest.approx(rates["index"] / rates["loop"])


def test_matching_is_compared_with_a_cross_encoder_that_reads_as_much(run: Run) -> None:
    result = run("matching", "--rounds", "1", "--photos", "2", SHAPE=TOWER, PAIRS=(3,), ITEMS=5)
    (row,) = result["rows"]
    assert row["sightline"]["pairs_per_second"] == pytest.approx(3000 / row["sightline"]["p50_ms"])
    if isinstance(row["cross_encoder"], str):
        assert (row["cross_encoder"], result["ratios"]) == ("sentence-transformers is not installed", {})
        return
    assert result["positions"]["sightline"] == result["positions"]["cross_encoder"]
    (ratio,) = result["ratios"].values()
    assert ratio == pytest.approx(row["cross_encoder"]["p50_ms"] / row["sightline"]["p50_ms"])


def test_end_to_end_is_measured_cold_and_warm_beside_a_plain_script(run: Run) -> None:
    script = [sys.executable, "-c", "print('instead of one that loads torch')"]
    options = ("--items", "40", "--runs", "1", "--rounds", "2", "--photos", "2")
    result = run("end_to_end", *options, TOWER=TOWER, SCRIPT=script)
    rows = {(row["start"], row["way"]): row for row in result["rows"]}
    ways = ("sightline, none matched", "sightline, 20 matched", "plain script")
    assert set(rows) == {(start, way) for start in ("cold", "warm") for way in ways}
    stages = {matched: rows["warm", f"sightline, {matched} matched"]["stages_ms"] for matched in ("none", "20")}
    assert stages["none"]["match"] == 0 < stages["20"]["match"]
    ratio = result["ratios"]["cold command, none matched, times as quick as a plain script"]
    assert ratio == pytest.approx(rows["cold", ways[2]]["p50_seconds"] / rows["cold", ways[0]]["p50_seconds"])


def test_table_4_follows_from_the_rates_of_a_few_photos(run: Run) -> None:
    result = run("evaluation", "--quick", "--photos", "3", IMAGES=8, CAPTIONS=40)
    assert result["rates"].keys() == {"images", "captions", "pairs"}
    assert "evaluation of 1,000 images, rerank 20, times as quick as paper 1 on a V100" in result["ratios"]
    rates = Rates(images=10.0, captions=100.0, pairs=1000.0)
    assert rates.seconds(1000, ranking=2.0) == {"embed": 152.0, "rerank 20": 272.0, "match all": 5150.0}
    small, large = table4(rates, ranking=50.0)
    assert (small["seconds"]["embed"], large["seconds"]["embed"]) == (152.0, 500 + 250 + 50)


def test_training_is_measured_at_once_and_in_chunks() -> None:
    whole, chunked = {"seconds": 1.0, "MB": 80.0}, {"seconds": 2.0, "MB": 20.0}
    rows, ratios = training.summary(training.CASES["cpu"], {"at once": [whole], "in chunks": [chunked] * 2})
    assert ("chunk" in rows[0], rows[1]["chunk"]) == (False, 64)
    assert list(ratios.values()) == [0.5, 4.0]


def test_growth_is_fitted_for_every_stage(run: Run) -> None:
    small: dict[str, Any] = {"MATCHED": (2, 4), "INTERACTED": (3, 6), "ITEMS": 12, "TEST_SETS": (4, 8)}
    result = run("growing", "--quick", "--pictures", "3,6", "--items", "20,40", "--photos", "2", **small)
    assert set(result["ratios"]) == {target.ratio for target in TARGETS if target.experiment == "growing"}


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0, 2.0])
def test_the_exponent_is_the_power_that_times_follow(power: float) -> None:
    sizes = [1_000, 10_000, 50_000, 1_000_000]
    assert growing.exponent(sizes, [1e-3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-12)
    with pytest.raises(ValueError, match="sizes"):
        growing.exponent([10, 10], [1.0, 2.0])


def test_late_interaction_is_compared_with_numpy(run: Run) -> None:
    result = run("late", "--quick", "--candidates", "5", model=False, PATCHES=3, DIM=8, EMBEDDING=16, POOL=4)
    assert [row["words"] for row in result["candidates"]] == [8, 16, 32]
    assert "late interaction of 5 candidates, times plain numpy, 32 words" in result["ratios"]
    for row in result["candidates"]:
        of_numpy = row["late"]["cpu_p50_ms"] / row["fetch and einsum"]["cpu_p50_ms"]
        assert row["ratio"]["cpu_p50_ms"] == of_numpy > 0


def test_a_scan_is_compared_with_plain_torch_and_a_wrong_answer_is_noticed(run: Run) -> None:
    result = run("scan", "--sizes", "100,300", "--dim", "32", "--calls", "2", model=False)
    assert result["ratios"]["share of the searches that were right"] == 1
    assert "times the floor, one query over 300 vectors in float16" in result["ratios"]
    vectors, queries = scan.made_up(500, 16, "cpu")
    right = scan.Scan(vectors, device="cpu")
    assert scan.is_right(right, vectors, queries)
    assert not scan.is_right(right, vectors.flip(0), queries)


def test_the_gpu_benchmark_needs_neither_onnx_runtime_nor_faiss(tmp_path: Path, tiny_bundle: Path) -> None:
    blocked = "import sys, runpy; sys.modules.update(dict.fromkeys(('onnxruntime', 'faiss')));"
    code = f"{blocked} sys.argv.pop(0); runpy.run_module('benchmarks.gpu', run_name='__main__', alter_sys=True)"
    sizes = ["--vectors", "300", "--images", "3", "--batches", "1,2", "--calls", "2", "--device", "cpu"]
    words = ["gpu", *sizes, "--model", str(tiny_bundle), "--json", str(tmp_path / "gpu.json")]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert {"ms, retrieve from 300 and rerank 20", "seconds, evaluate 3 images with rerank 20"} <= set(result["ratios"])


def test_photos_have_thumbnails_that_quick_indexing_reads(tmp_path: Path) -> None:
    samples.write_photos(samples.made_up(1), tmp_path, (2400, 1800), (160, 120))
    (file,) = tmp_path.iterdir()
    preprocess = Preprocess(32, mean=(0, 0, 0), std=(1, 1, 1), decode_at_least=96, previews=True)
    assert open_for_model(ImageFile(file), preprocess).image.size == (160, 120)
    assert open_for_model(ImageFile(file), replace(preprocess, previews=None)).image.size == (300, 225)
