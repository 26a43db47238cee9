"""The benchmark of encoding puts Sightline beside its peers on tiny models, and says which graph costs what."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tiny
from benchmarks.scripts import script
from server.samples import picture
from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec, sha256, write_spec
from sightline.datasets import Record
from sightline.evaluation import evaluate
from sightline.media import ImageBytes
from sightline.models import checkpoint
from sightline.onnx_export.quantize import quantize

CAPTIONS = ("a red dog on the grass", "two cats in the snow", "a child with a ball")
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}


def records(*_: object) -> list[Record]:
    return [Record(f"{n}", ImageBytes(f"{n}.png", picture(n)), {"en": CAPTIONS}) for n in range(4)]


@pytest.fixture(scope="module")
def encoding() -> Iterator[ModuleType]:
    """The script, with towers as small as the bundle, and workers that are no processes but calls."""
    with pytest.MonkeyPatch.context() as patch:
        module = script("benchmarks.encoding")
        patch.setattr(module, "IMAGE_TOWER", {**SHAPE, "image_size": 32, "patch_size": 16})
        patch.setattr(module, "TEXT_TOWER", SHAPE)
        patch.setattr(module, "read_all", records)
        patch.setattr(module, "Worker", Here)
        patch.setenv("SIGHTLINE_DATA", "nowhere")
        yield module


class Here:
    """Carries out a task in this process."""

    def __init__(self, task: Any) -> None:
        self.out, self.way, self.most = task.out, sys.modules["benchmarks.encoders"].ready(task), 1.0

    def __call__(self) -> None:
        np.save(self.out, self.way())

    def close(self) -> None:
        pass


def run(module: ModuleType, path: Path, *words: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["encoding.py", "--rounds", "1", "--json", str(path), *words])
        module.main()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoding")


@pytest.fixture(scope="module")
def graphs(work: Path, tiny_bundle: Path) -> Path:
    """The tiny model as `bundles` would leave it: as it is, and twice in int8."""
    folder = work / "graphs"
    pixels = np.random.default_rng(0).normal(size=(8, 1, 3, 32, 32)).astype(np.float32)
    samples = {"float32": None, "int8-in-blocks": [], "int8-with-fixed-ranges": [{"pixels": one} for one in pixels]}
    for name, given in samples.items():
        bundle = Path(shutil.copytree(tiny_bundle, folder / name))
        if given is not None:
            quantize(bundle / "image.onnx", samples=given)
            spec = read_spec(bundle)
            files = {**spec.files, "image.onnx": sha256(bundle / "image.onnx")}
            write_spec(bundle, dataclasses.replace(spec, name=name, files=files))
    return folder


@pytest.fixture(scope="module")
def result(encoding: ModuleType, work: Path, graphs: Path, tiny_bundle: Path) -> dict[str, Any]:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: sightline[bench]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "openvino", None)
        words = ("--checkpoint", "made already", "--work", str(graphs), "--recall")
        return run(encoding, work / "result.json", "--model", str(tiny_bundle), *words)


def row(result: dict[str, Any], of: str, way: str) -> dict[str, Any]:
    (found,) = (row for row in result["rows"] if row["of"] == of and row["way"] == way)
    return dict(found)


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_ratios_are_those_of_the_rates(result: dict[str, Any], kind: str) -> None:
    own = row(result, kind, "Sightline")["per_second"]
    for peer in ("sentence-transformers", "a plain transformers loop"):
        ratio = result["ratios"][f"{kind} a second, times {peer}"]
        assert ratio == pytest.approx(own / row(result, kind, peer)["per_second"])
    blocks = result["ratios"][f"{kind} a second of ONNX Runtime, int8 in blocks, times the graph that ships"]
    assert blocks == pytest.approx(row(result, kind, "ONNX Runtime, int8 in blocks")["per_second"] / own)


def test_how_near_a_graph_comes_to_float32_is_measured(result: dict[str, Any]) -> None:
    assert row(result, "images", "ONNX Runtime, float32")["cosine_to_float32"]["min"] == pytest.approx(1, abs=1e-5)
    for precision in ("int8 in blocks", "int8 with fixed ranges"):
        found = row(result, "images", f"ONNX Runtime, {precision}")["cosine_to_float32"]
        assert 0.9 < found["min"] <= found["mean"] < 1 - 1e-7
    assert "cosine_to_float32" not in row(result, "images", "sentence-transformers")


def test_a_peer_that_is_not_installed_is_named(result: dict[str, Any]) -> None:
    way = "OpenVINO, float16"
    assert row(result, "images", way) == {"of": "images", "way": way, "missing": "openvino is not installed"}


def test_the_slowest_stage_is_called_the_bottleneck(result: dict[str, Any]) -> None:
    found = {row["photos"]: row for row in result["rows"] if row["of"] == "stages"}
    assert set(found) == {"ordinary", "12 megapixels"}
    for name, stages in found.items():
        ms = stages["ms"]
        assert ms[stages["bottleneck"]] == max(ms.values())
        share = result["ratios"][f"share of the model in the time of a photo, {name}"]
        assert share == pytest.approx(ms["encode"] / sum(ms.values()))
    assert found["12 megapixels"]["ms"]["decode"] > 3 * found["ordinary"]["ms"]["decode"]


def test_recall_is_that_of_an_evaluation_and_measured_once(
    result: dict[str, Any], graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = evaluate(Bundle.open(graphs / "float32"), records()).to_json()
    assert row(result, "recall", "float32")["rSum"] == pytest.approx(right["rSum"])
    module = sys.modules["benchmarks.precisions"]
    monkeypatch.setattr(module, "evaluate", None)
    assert module.recalled(graphs / "float32", graphs, [])["rSum"] == pytest.approx(right["rSum"])


def test_graphs_that_are_not_there_are_made_each_in_its_precision(
    encoding: ModuleType, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, tuple[str, bool]] = {}

    def export(*given: Any, name: str, precision: str = "float32", pictures: Any = None) -> None:
        made[name] = (precision, pictures is not None)
        given[2].mkdir(parents=True)

    monkeypatch.setattr("sightline.onnx_export.exporter.export", export)
    checkpoint.save(tiny.retriever(dataclasses.replace(tiny.DUAL, matcher="none")), tiny.tokenizer(), work / "model")
    (tmp_path / "int8-in-blocks").mkdir()
    found = encoding.bundles(work / "model", tmp_path, records())
    assert made == {"float32": ("float32", False), "int8 with fixed ranges": ("int8", True)}
    assert all(folder.is_dir() for folder in found.values())
    made.clear()
    assert encoding.bundles(work / "model", tmp_path, []) == found
    assert not made
