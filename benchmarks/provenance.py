"""Where a measurement came from: what every result file says of itself."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def provenance(seed: int, data: list[str]) -> dict[str, Any]:
    """The command, commit, data, seed and machine of a measurement."""
    return {
        "command": command(),
        "commit": _commit(),
        "data": data,
        "seed": seed,
        "machine": _machine(),
    }


def command() -> str:
    """What was typed: `python -m benchmarks.NAME …` for a script of this checkout."""
    script, root = Path(sys.argv[0]).resolve(), Path(__file__).resolve().parents[1]
    if script.is_relative_to(root) and script.suffix == ".py":
        return " ".join(["python -m", ".".join(script.relative_to(root).with_suffix("").parts), *sys.argv[1:]])
    return " ".join(["python", *sys.argv])


def _commit() -> str:
    """Of the checkout, or, where that has no history, as the environment says."""
    if "SIGHTLINE_COMMIT" in os.environ:
        return os.environ["SIGHTLINE_COMMIT"]
    here = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    if "torch" in sys.modules:
        import torch

        found["torch"] = torch.__version__
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return found
