"""The benchmark of the scan runs in plain torch at a toy size, and notices a wrong answer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scripts import script

scan = script("benchmarks.scan")


def test_a_toy_run_writes_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scan.json"
    monkeypatch.setattr(scan, "ALTERNATIVES", scan.ALTERNATIVES[-1:])
    monkeypatch.setattr(scan, "REPEATS", 1)
    options = ["--device", "cpu", "--sizes", "100,300", "--dim", "32", "--calls", "2", "--alternatives"]
    monkeypatch.setattr(sys, "argv", ["scan.py", *options, "--json", str(path)])
    scan.main()
    result: dict[str, Any] = json.loads(path.read_text())
    assert result["experiment"] == "scan"
    assert {"command", "commit", "machine", "bytes_per_second"} <= result.keys()
    searches = [row for row in result["rows"] if "times_floor" in row]
    assert {(row["vectors"], row["dtype"], row["batch"]) for row in searches} == {
        (size, dtype, batch) for size in (100, 300) for dtype in ("float16", "int8") for batch in (1, 8, 64)
    }
    filtered = [(row["told"], row["given"]) for row in result["rows"] if "filter" in row]
    assert filtered == 4 * [(told, given) for told in ("rows", "mask") for given in ("anew", "again")]
    assert all(row["is_right"] for row in result["rows"] if "is_right" in row)
    assert all(min(row["steps_ms"].values()) > 0 for row in result["rows"] if "cut" in row)
    assert result["ratios"]["share of the searches that were right"] == 1
    assert "times the floor, one query over 300 vectors in float16" in result["ratios"]
    assert capsys.readouterr().out.count("\n") == 1


def test_a_wrong_answer_is_noticed() -> None:
    vectors, queries = scan.made_up(500, 16, "cpu")
    right = scan.Scan(vectors, device="cpu")
    assert scan.is_right(right, vectors, queries)
    assert not scan.is_right(right, vectors.flip(0), queries)
