"""Compare Sightline's retrieval with FAISS and usearch at equal recall, for several numbers of vectors.

    python -m benchmarks.retrieval --work FOLDER

Vectors are drawn around the embeddings of photos. Queries are captions, because texts and images are embedded in
different regions, and an index that works for image queries may fail for texts. Recall is relative to an exact search
in float32. Every index is searched in its own process, one query at a time, with one core and with two. Search effort
is tuned on every other query, and the index is measured on the rest. Results are saved in the work folder, so that an
interrupted run can continue; 10,000,000 vectors take 11 GB there. The folder is deleted at the end unless --keep is
given.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.growing import exponent
from benchmarks.provenance import write_whole
from benchmarks.timing import in_a_process, numbers, options, save
from benchmarks.vector_search.indexes import KINDS, OURS, Kind
from benchmarks.vector_search.steps import EQUAL, LEAST, LEAST_RECALL, Case, Settings, open_case, run_step

SIZES, QUICK_SIZES = [10_000, 100_000, 1_000_000, 10_000_000], [10_000, 100_000]
PAPER_1_MS = 1_600.0
"""Milliseconds per query of paper 1's bi-encoder over a million images, on a CPU (its Table 3)."""
SLACK = 0.01  # differences in recall below this count as equal
Row = Mapping[str, Any]


def rows(case: Case, keep: bool) -> list[dict[str, Any]]:
    """The result of every kind of index for a case, or why it was skipped."""
    found = []
    for kind in KINDS:
        row: dict[str, Any] = {"items": case.size, "way": kind.name}
        if find_spec(kind.package) is None:
            row["left_out"] = f"{kind.package} is not installed"
        elif case.size > kind.up_to:
            row["left_out"] = kind.why
        else:
            cores = sorted({1, case.settings.cores})
            row |= once(case, "build", kind, cores[-1], f"{kind.folder}-built")
            row["cores"] = {f"{count}": once(case, "search", kind, count, f"{kind.key}-{count}") for count in cores}
        print(json.dumps(row), file=sys.stderr, flush=True)
        found.append(row)
    if not keep:
        shutil.rmtree(case.at, ignore_errors=True)
    return found


def once(case: Case, step: str, kind: Kind, cores: int, name: str) -> Any:
    """The result of a step, which is run in a process with this many cores unless it was run before."""
    note = case.note(name)
    if not note.exists():
        words = [str(case.work), str(case.size), step, kind.key, str(cores)]
        found = in_a_process("benchmarks.retrieval", "--step", *words, cores=cores)
        write_whole(note, json.dumps(found).encode())
    return json.loads(note.read_text())


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


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", type=numbers)
    parser.add_argument("--work", type=Path, help="where to build, and where an interrupted run continues")
    parser.add_argument("--keep", action="store_true", help="do not delete what was built")
    parser.add_argument("--queries", type=int, help="half of them to tune with; by default 200, or 100 for --quick")
    parser.add_argument("--step", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        work, size, step, key, count = arguments.step
        kind = next(kind for kind in KINDS if kind.key == key)
        print(json.dumps(run_step(open_case(Path(work), int(size)), step, kind, int(count))))
        return
    quick, cores = arguments.quick, min(2, os.cpu_count() or 1)
    work = arguments.work or Path(tempfile.gettempdir()) / f"sightline-retrieval{'-quick' if quick else ''}"
    photos, queries, care, seconds = (64, 100, 40, 0.1) if quick else (1_000, 200, 80, 2.0)
    settings = Settings(arguments.model, photos, arguments.queries or queries, care, seconds, cores)
    sizes = arguments.sizes or (QUICK_SIZES if quick else SIZES)
    cases = [open_case(work.resolve(), size, settings) for size in sizes]
    found = [row for case in cases for row in rows(case, arguments.keep)]
    save("retrieval", arguments, [samples.data()], found, ratios(found, cores), model=arguments.model, care=care)
    if not arguments.keep:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
