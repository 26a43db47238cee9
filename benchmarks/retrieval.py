"""Compare Sightline's retrieval with FAISS and usearch at equal recall, for several numbers of vectors.

    python -m benchmarks.retrieval

Vectors are drawn around the embeddings of photos. Queries are captions, because texts and images are embedded in
different regions, and an index that works for image queries may fail for texts. Recall is relative to an exact search
in float32. Every index is searched in its own process, one query at a time, with one core and with two. Search effort
is tuned on every other query, and the index is measured on the rest. Indexes are built in a temporary folder, where
10,000,000 vectors take 11 GB; --work names another folder.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.growing import exponent
from benchmarks.timing import in_a_process, numbers, options, save
from benchmarks.vector_search.indexes import KINDS, OURS, Kind
from benchmarks.vector_search.steps import EQUAL, LEAST, LEAST_RECALL, Case, build, search

SIZES, QUICK_SIZES = [10_000, 100_000, 1_000_000, 10_000_000], [10_000, 100_000]
PAPER_1_MS = 1_600.0
"""Milliseconds per query of paper 1's bi-encoder over a million images, on a CPU (its Table 3)."""
SLACK = 0.01  # differences in recall below this count as equal
Row = Mapping[str, Any]


def rows(case: Case, cores: int) -> list[dict[str, Any]]:
    """Return the result of every kind of index for a case, with one core and with `cores`, or why it was skipped."""
    found: list[dict[str, Any]] = []
    built: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        row: dict[str, Any] = {"items": case.size, "way": kind.name}
        if find_spec(kind.package) is None:
            row["left_out"] = f"{kind.package} is not installed"
        elif case.size > kind.up_to:
            row["left_out"] = kind.why
        else:
            if kind.folder not in built:
                built[kind.folder] = in_its_process(case, kind, cores, "build")
            row |= built[kind.folder]
            row["cores"] = {}
            for count in sorted({1, cores}):
                target = at(found[0], EQUAL, count)["recall@20"] if found else 0.0
                row["cores"][f"{count}"] = in_its_process(case, kind, count, f"{target}")
        print(json.dumps(row), file=sys.stderr, flush=True)
        found.append(row)
    return found


def in_its_process(case: Case, kind: Kind, cores: int, step: str) -> Any:
    """Run a step in a process with this many cores; step: `build`, or the target recall of a search."""
    words = [json.dumps(asdict(case)), kind.name, str(cores), step]
    return in_a_process("benchmarks.retrieval", "--step", *words, cores=cores)


def run_step(case: str, name: str, cores: str, step: str) -> Any:
    """Run the step that `in_its_process` asked for; returns its result."""
    opened, kind = Case(**json.loads(case)), next(kind for kind in KINDS if kind.name == name)
    return build(opened, kind) if step == "build" else search(opened, kind, int(cores), float(step))


def ratios(rows: Sequence[Row], cores: int) -> dict[str, float]:
    """Compare Sightline with each index at the largest size measured, with all cores; also returns growth exponents."""
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
    """Return how much faster Sightline is than another index, at each target recall that the other reaches."""
    found, where = {}, f"at {other['items']:,}"
    for aim in (EQUAL, LEAST):
        own, its = at(ours, aim, cores) or at(ours, EQUAL, cores), at(other, aim, cores)
        wanted = own["recall@20"] if aim == EQUAL else LEAST_RECALL
        if its and its["recall@20"] >= wanted - SLACK:
            found[f"times as quick as {way.name} {aim} {where}"] = its["p50_ms"] / own["p50_ms"]
    if way.folder != OURS.folder:
        found[f"times as quickly built as {way.name} {where}"] = other["build_seconds"] / ours["build_seconds"]
    return found


def at(row: Row, aim: str, cores: int) -> Any:
    """Return a row's measurement at a target recall, if there is one."""
    return row["cores"][f"{cores}"].get(aim, {})


def growth(measured: Mapping[str, Mapping[int, Row]], cores: int) -> dict[str, float]:
    """Growth exponents over all sizes."""
    found = {}
    for name, rows in measured.items():
        took = {size: at(row, EQUAL, cores)["p50_ms"] for size, row in sorted(rows.items())}
        if len(took) > 1:
            found[f"exponent of {name}, in items"] = exponent([*took], [*took.values()])
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", type=numbers)
    parser.add_argument("--work", type=Path, help="where to build; by default where temporary files are")
    parser.add_argument("--queries", type=int, help="half of them to tune with; by default 200, or 100 for --quick")
    parser.add_argument("--step", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(run_step(*arguments.step)))
        return
    quick, cores = arguments.quick, min(2, os.cpu_count() or 1)
    photos, queries, care, seconds = (64, 100, 40, 0.1) if quick else (1_000, 200, 80, 2.0)
    found = []
    with tempfile.TemporaryDirectory(prefix="sightline-retrieval-", dir=arguments.work) as work:
        for size in arguments.sizes or (QUICK_SIZES if quick else SIZES):
            case = Case(work, size, arguments.model, photos, arguments.queries or queries, care, seconds)
            found += rows(case, cores)
            shutil.rmtree(case.at)
            save(
                "retrieval", arguments, [samples.data()], found, ratios(found, cores), model=arguments.model, care=care
            )


if __name__ == "__main__":
    main()
