"""Sightline's retrieval beside FAISS and usearch at equal recall: time, memory, building, filters and changes, by size.

    python -m benchmarks.retrieval --work FOLDER

Needs SIGHTLINE_DATA and a bundle (the bundled one). The vectors lie around the embeddings of real photos; the queries
are real captions, because a text lies elsewhere than the images that it describes, and an index that finds images by
images may fail by words. Recall is measured against comparing everything in float32. Every way is asked in a process of
its own, one query at a time, with one core and with two. Efforts are tuned on every other query and measured on the
rest. What is done is noted in the work folder, and an interrupted run goes on from there. 10,000,000 vectors take 11 GB
of it; it is deleted at the end, unless it is to be kept.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.timing import options, write
from benchmarks.vector_search.case import Case, Settings, begin
from benchmarks.vector_search.indexes import OURS, WAYS, Way
from benchmarks.vector_search.steps import ask, build
from benchmarks.vector_search.summary import bandwidth, floor_ms, ratios

SIZES, QUICK_SIZES = "10000,100000,1000000,10000000", "10000,100000"
CARE, QUICK_CARE = 80, 40
SECONDS, QUICK_SECONDS = 2.0, 0.1


def rows(case: Case, keep: bool) -> list[dict[str, Any]]:
    """Each way's results with so many vectors; what is left out says why."""
    found = []
    for way in WAYS:
        row = {"items": case.size, "way": way.name, **(left_out(case, way) or results(case, way))}
        print(json.dumps(row), file=sys.stderr, flush=True)
        found.append(row)
    if not keep:
        shutil.rmtree(case.at, ignore_errors=True)
    return found


def left_out(case: Case, way: Way) -> dict[str, str]:
    """Why a way is not measured, where it is not."""
    if find_spec(way.package) is None:
        return {"left_out": f"{way.package} is not installed"}
    return {"left_out": way.why} if case.size > way.up_to else {}


def results(case: Case, way: Way) -> dict[str, Any]:
    """What was measured of a way."""
    every = sorted({1, case.settings.cores})
    built = once(case, f"{way.folder}-built", "build", OURS if way.folder == OURS.folder else way, every[-1])
    asked = {f"{cores}": once(case, f"{way.key}-{cores}", "ask", way, cores) for cores in every}
    return {**built, "cores": asked}


def once(case: Case, name: str, step: str, way: Way, cores: int) -> Any:
    """The result of a step, which notes it in a process of its own unless that was done before."""
    if not case.note(name).exists():
        case.note(name).parent.mkdir(exist_ok=True)
        if step == "ask":
            case.right(None)  # with all cores, before there may be but one
        apart([str(case.work), str(case.size), name, step, way.key, str(cores)], cores)
    return case.noted(name)


def apart(step: list[str], cores: int) -> None:
    """Do a step in a process that has so many cores."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores))
    subprocess.run(
        [sys.executable, "-m", "benchmarks.retrieval", "--step", *step], check=True, env=os.environ | threads
    )


def do(work: str, size: str, name: str, step: str, key: str, cores: str) -> None:
    """Do a step, and note its result."""
    case, way = Case(Path(work), int(size)), next(way for way in WAYS if way.key == key)
    result = build(case, way) if step == "build" else ask(case, way, int(cores))
    begun = case.note(name).with_suffix(".begun")
    begun.write_text(json.dumps(result))
    begun.replace(case.note(name))


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--sizes", help=f"by default {SIZES}, or {QUICK_SIZES} for --quick")
    parser.add_argument("--work", type=Path, help="where to build, and where an interrupted run goes on")
    parser.add_argument("--keep", action="store_true", help="do not delete what was built")
    parser.add_argument("--model", default="default")
    parser.add_argument("--queries", type=int, help="half of them to tune with; by default 200, or 100 for --quick")
    parser.add_argument("--step", nargs=6, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if arguments.step:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(arguments.step[-1])])
        do(*arguments.step)
        return
    quick, cores = arguments.quick, min(2, os.cpu_count() or 1)
    work = arguments.work or Path(tempfile.gettempdir()) / f"sightline-retrieval{'-quick' if quick else ''}"
    photos, queries, care, seconds = (64, 100, QUICK_CARE, QUICK_SECONDS) if quick else (1_000, 200, CARE, SECONDS)
    begin(work, Settings(arguments.model, photos, arguments.queries or queries, care, seconds, cores))
    cases = [Case(work, int(size)) for size in (arguments.sizes or (QUICK_SIZES if quick else SIZES)).split(",")]
    dim, reached = cases[0].queries().shape[1], bandwidth(cores)
    floors = {case.size: floor_ms(case.size, dim, reached) for case in cases}
    found = [row for case in cases for row in rows(case, arguments.keep)]
    told = {"model": arguments.model, "care": care, "bytes_per_second": reached, "floor_ms": floors}
    write("retrieval", arguments, ["flickr8k-test"], found, ratios(found, cores, floors), **told)
    if not arguments.keep:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
