"""Compare Sightline's retrieval with FAISS and usearch at equal recall, by the number of vectors.

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
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.timing import numbers, options, save
from benchmarks.vector_search.indexes import KINDS, Kind
from benchmarks.vector_search.steps import Case, Settings, open_case, run_step
from benchmarks.vector_search.summary import ratios

SIZES, QUICK_SIZES = [10_000, 100_000, 1_000_000, 10_000_000], [10_000, 100_000]


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
    if not case.note(name).exists():
        words = [str(case.work), str(case.size), step, kind.key, str(cores), name]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores))
        command = [sys.executable, "-m", "benchmarks.retrieval", "--step", *words]
        subprocess.run(command, check=True, env=os.environ | threads)
    return json.loads(case.note(name).read_text())


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", type=numbers)
    parser.add_argument("--work", type=Path, help="where to build, and where an interrupted run continues")
    parser.add_argument("--keep", action="store_true", help="do not delete what was built")
    parser.add_argument("--queries", type=int, help="half of them to tune with; by default 200, or 100 for --quick")
    parser.add_argument("--step", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        work, size, step, key, count, name = arguments.step
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(count)])
        kind = next(kind for kind in KINDS if kind.key == key)
        run_step(open_case(Path(work), int(size)), step, kind, int(count), name)
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
