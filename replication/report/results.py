"""Result files, read: the runs of paper 1 by system and seed, and the others as they are."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from replication.report.estimates import Estimate, Interval

Metric = tuple[str, ...]
"""Where a number stands in a result, and its interval below `ci95`."""

R_SUM: Metric = ("rSum",)
WAYS = ("text_to_image", "image_to_text")
RECALLS: tuple[Metric, ...] = tuple((way, f"R@{k}") for way in WAYS for k in (1, 5, 10))
T2I_1, T2I_10 = RECALLS[0], RECALLS[2]


@dataclass(frozen=True, slots=True)
class System:
    """A row of paper 1: which system, trained how, and how it ranks.

    k, fusion and weight matter only to the systems that rerank; enlarged: with distractors in the gallery.
    """

    name: str
    variant: str = "full"
    k: int = 20
    fusion: str = "ce"
    weight: float | None = None
    enlarged: bool = False

    @property
    def stages(self) -> list[str]:
        """As result files spell them."""
        if self.name.endswith("COOP"):
            return ["embed", f"match@{self.k}"]
        return ["match@all"] if self.name.endswith("CE") else ["embed"]

    def of(self, variant: str) -> "System":
        """The same system, trained in another way."""
        return replace(self, variant=variant)

    def is_row(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of a result file is of this system."""
        reranks = self.name.endswith("COOP")
        return (
            row["row"] == self.name
            and row["stages"] == self.stages
            and bool(row["distractors"]) == self.enlarged
            and (not reranks or (row["fusion"], row["weight"]) == (self.fusion, self.weight))
        )


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result file and what it says."""

    path: Path
    content: Mapping[str, Any]

    @property
    def origin(self) -> str:
        """What it was measured on, the GPU or the CPU's cores, and at which commit."""
        machine = self.content["machine"]
        device = machine.get("gpu") or f"{machine['cores']} {machine['processor']} cores"
        return f"{device} at commit {self.content['commit'][:7]}"


def read_folder(folder: Path) -> list[ResultFile]:
    """Read all result files of a folder, sorted by name; none where there is no such folder."""
    paths = sorted(folder.glob("*.json"))
    return [ResultFile(path, json.loads(path.read_text(encoding="utf-8"))) for path in paths]


class Replica:
    """All runs of paper 1's experiments."""

    def __init__(self, files: Iterable[ResultFile]) -> None:
        self.files = list(files)

    def files_of(self, *variants: str) -> list[ResultFile]:
        """The files that runs of these variants left."""
        return [file for file in self.files if file.content["variant"] in variants]

    def rows(self, system: System) -> dict[int, Mapping[str, Any]]:
        """The row of a system for every seed. Two files that disagree about one are refused."""
        found: dict[int, tuple[Path, Mapping[str, Any]]] = {}
        for file in self.files_of(system.variant):
            seed = file.content["seed"]
            for row in filter(system.is_row, file.content["rows"]):
                if seed in found and found[seed][1]["rSum"] != row["rSum"]:
                    raise SystemExit(f"{found[seed][0]} and {file.path} disagree about {system}: remove one of them")
                found[seed] = file.path, row
        return {seed: row for seed, (_, row) in sorted(found.items())}

    def estimate(self, system: System, metric: Metric = R_SUM) -> Estimate:
        """One number of a system, for every seed; empty where it was not measured."""
        return estimate(self.rows(system), metric)

    def seconds(self, run: str, variant: str) -> Estimate:
        """How long the training of a run (be, ce, joint) took."""
        files = [file for file in self.files_of(variant) if run in file.content["training"]]
        return Estimate({file.content["seed"]: file.content["training"][run]["seconds"] for file in files})


def estimate(rows: Mapping[int, Mapping[str, Any]], metric: Metric) -> Estimate:
    """One number of rows, by seed, with its bootstrap interval."""
    values = {seed: float(_at(row, metric)) for seed, row in rows.items()}
    intervals: dict[int, Interval] = {}
    for seed, row in rows.items():
        low, high = _at(row["ci95"], metric)
        intervals[seed] = float(low), float(high)
    return Estimate(values, intervals)


def _at(row: Mapping[str, Any], metric: Metric) -> Any:
    value: Any = row
    for key in metric:
        value = value[key]
    return value
