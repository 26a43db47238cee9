"""Result files of paper 1's experiments with numbers of the test's choosing, in the shape that paper1.py writes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replication.report.results import RECALLS, System

MACHINE = {"processor": "x86_64", "cores": 16, "python": "3.12.3", "gpu": "Some GPU"}


def row(system: System, recalls: tuple[float, ...], half: float = 0.01) -> dict[str, Any]:
    """A row with six recalls, each known to ± `half`."""
    made: dict[str, Any] = {
        "row": system.name,
        "stages": system.stages,
        "fusion": system.fusion if system.name.endswith("COOP") else None,
        "weight": system.weight,
        "images": 1000,
        "captions": 5000,
        "distractors": 3500 if system.enlarged else 0,
        "rSum": sum(recalls),
        "ci95": {"rSum": [sum(recalls) - 6 * half, sum(recalls) + 6 * half]},
    }
    for (way, recall), value in zip(RECALLS, recalls, strict=True):
        made.setdefault(way, {})[recall] = value
        made["ci95"].setdefault(way, {})[recall] = [value - half, value + half]
    return made


def flat(value: float) -> tuple[float, ...]:
    """Six equal recalls."""
    return (value,) * 6


def write(folder: Path, name: str, rows: Mapping[System, tuple[float, ...]], seed: int = 0, half: float = 0.01) -> Path:
    """Write one file of a variant, with the rows of systems."""
    (variant,) = {system.variant for system in rows}
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "experiment": "paper1",
        "variant": variant,
        "command": "python -m replication.paper1",
        "commit": "0" * 40,
        "seed": seed,
        "machine": MACHINE,
        "training": {run: {"seconds": 60.0 + seed, "steps": 800} for run in ("be", "ce", "joint")},
        "rows": [row(system, recalls, half) for system, recalls in rows.items()],
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path
