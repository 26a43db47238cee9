"""Numbers derived from the results of retrieval.py: ratios, and how times grow."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.growing import exponent
from benchmarks.vector_search.indexes import KINDS, OURS, Kind
from benchmarks.vector_search.steps import EQUAL, LEAST, LEAST_RECALL

PAPER_1_MS = 1_600.0
"""Milliseconds per query of paper 1's bi-encoder over a million images, on a CPU (its Table 3)."""
SLACK = 0.01  # differences in recall below this count as equal
Row = Mapping[str, Any]


def ratios(rows: Sequence[Row], cores: int) -> dict[str, float]:
    """Sightline compared with each index at the largest size it was measured at, with all cores, and how each grows."""
    measured = {
        way.name: {row["items"]: row for row in rows if row["way"] == way.name and "cores" in row} for way in KINDS
    }
    ours = measured[OURS.name]
    found: dict[str, float] = {}
    for way in KINDS:
        if way is not OURS and measured[way.name]:
            size = max(measured[way.name])
            found |= beside(ours[size], measured[way.name][size], way, cores)
    for size, row in ours.items():
        took = {count: at(row, EQUAL, count)["p50_ms"] for count in (1, cores)}
        found[f"times as quick with {cores} cores as with one at {size:,}"] = took[1] / took[cores]
    if 10**6 in ours:
        found["times as quick as paper 1's 1.6 s at 1,000,000"] = PAPER_1_MS / at(ours[10**6], EQUAL, cores)["p50_ms"]
    return found | growth(measured, cores)


def beside(ours: Row, other: Row, way: Kind, cores: int) -> dict[str, float]:
    """How much faster Sightline is than another index of the same size, at each target recall the other reaches."""
    found, where = {}, f"at {other['items']:,}"
    for aim in (EQUAL, LEAST):
        own, its = at(ours, aim, cores) or at(ours, EQUAL, cores), at(other, aim, cores)
        wanted = own["recall@20"] if aim == EQUAL else LEAST_RECALL
        if its and its["recall@20"] >= wanted - SLACK:
            found[f"times as quick as {way.name} {aim} {where}"] = its["p50_ms"] / own["p50_ms"]
    if way.key == way.folder:
        found[f"times as quickly built as {way.name} {where}"] = other["build_seconds"] / ours["build_seconds"]
    return found


def at(row: Row, aim: str, cores: int) -> Any:
    """A row's measurement at a target recall, if there is one."""
    return row["cores"][f"{cores}"].get(aim, {})


def growth(measured: Mapping[str, Mapping[int, Row]], cores: int) -> dict[str, float]:
    """Growth exponents over all sizes; for Sightline, whose search is exhaustive at first, also over the last two."""
    found = {}
    for name, rows in measured.items():
        took = {size: at(row, EQUAL, cores)["p50_ms"] for size, row in sorted(rows.items())}
        if len(took) > 1:
            found[f"exponent of {name}, in items"] = exponent([*took], [*took.values()])
        if len(took) > 2 and name == OURS.name:
            first, last = sorted(took)[-2:]
            over = f"from {first:,} to {last:,}"
            found[f"exponent of {name}, in items, {over}"] = exponent([first, last], [took[first], took[last]])
    return found
