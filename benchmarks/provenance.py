"""Read and write result files, with their provenance."""

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.commit import commit_of
from sightline.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def provenance(seed: int, data: list[str]) -> dict[str, Any]:
    """Return the command, commit, data, seed and machine of a measurement."""
    return {
        "command": command(),
        "commit": commit_of(Path(__file__)),
        "data": data,
        "seed": seed,
        "machine": _machine(),
    }


def command() -> str:
    """Return the command line: `python -m benchmarks.NAME …` for a script of this checkout."""
    script = Path(sys.argv[0]).resolve()
    if script.is_relative_to(ROOT) and script.suffix == ".py":
        module = ".".join(script.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        return " ".join(["python -m", module, *sys.argv[1:]])
    return " ".join(["python", *sys.argv])


def _machine() -> dict[str, Any]:
    found: dict[str, Any] = {"processor": platform.machine(), "cores": os.cpu_count()}
    found["python"] = platform.python_version()
    if "torch" in sys.modules:
        import torch

        found["torch"] = torch.__version__
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return found


def read_result(path: Path) -> dict[str, Any]:
    """Read one result file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Read all result files of a folder, sorted by name."""
    return [read_result(path) for path in sorted(folder.glob("*.json"))]


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result file atomically, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
