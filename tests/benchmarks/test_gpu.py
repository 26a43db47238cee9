"""The benchmark of a bundle on a GPU runs under torch on the processors, without ONNX Runtime and FAISS."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BLOCKED = """
import importlib.util, runpy, sys
MISSING = ("onnxruntime", "faiss", "usearch", "openvino", "sentence_transformers", "hypothesis")
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(name)
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in MISSING else found(name, *rest)
sys.meta_path.insert(0, Block())
sys.path.insert(0, sys.argv[1])
sys.argv = ["gpu.py", *sys.argv[2:]]
runpy.run_path(sys.path[0] + "/gpu.py", run_name="__main__")
"""


def test_a_toy_run_writes_its_table(tmp_path: Path, tiny_bundle: Path) -> None:
    path, folder = tmp_path / "gpu.json", Path(__file__).resolve().parents[2] / "benchmarks"
    sizes = ["--vectors", "300", "--images", "3,6", "--batches", "1,2", "--calls", "2"]
    asked = ["--device", "cpu", "--model", str(tiny_bundle), "--json", str(path), *sizes]
    environment = {**os.environ, "SIGHTLINE_COMMIT": "0" * 40}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(folder), *asked],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(path.read_text())
    assert (result["experiment"], result["model"]) == ("gpu", "tiny")
    assert result["operations_per_second"] > result["bytes_per_second"] / 100 > 0
    whats = [row["what"] for row in result["rows"]]
    expected = ["encode a query", "match 20 pairs", *["encode pictures"] * 2, "retrieve and rerank", *["evaluate"] * 2]
    assert whats == expected
    floors = [row["floor_ms"] for row in result["rows"] if "floor_ms" in row]
    assert len(floors) == 3
    assert min(floors) > 0
    assert {"encode_images", "encode_texts", "match"} <= result["rows"][-1]["parts"].keys()
    assert {
        "ms, match 20 pairs",
        "times the floor, encode a query",
        "ms, retrieve from 300 and rerank 20",
        "seconds, evaluate 6 images with rerank 20",
        "pictures a second",
    } <= result["ratios"].keys()
    assert done.stdout.startswith("gpu: ")
    assert done.stdout.count("\n") == 1
