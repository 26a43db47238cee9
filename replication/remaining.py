"""Train and measure what the tables still lack, side by side on one GPU: the rest of papers 2 and 3.

    python -m replication.remaining --processes 12 --gigabytes 128 --minutes 26

Each run is a command of `replication.paper2` or `replication.paper3`, so a repeated call goes on where the last one
ended. Runs whose results exist are left out.
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.provenance import RESULTS
from replication import paper2
from replication.scheduler import Job, Scheduler

SEEDS = (0, 1, 2)
PAPER2 = ["-m", "replication.paper2", "--set", "schedule.epochs=15"]
PAPER3 = ["-m", "replication.paper3"]
CODES = {("I16", "paper"): 20.0, ("I32", "contrastive"): 25.0}
"""Runs and variants of paper 3 that are missing, and the gigabytes they need on the GPU."""


def missing(results: Path) -> list[Job]:
    """Return the runs whose results do not exist."""
    jobs = {}
    for (run, variant), gigabytes in CODES.items():
        for seed in SEEDS:
            arguments = [*PAPER3, "--runs", run, "--seeds", str(seed), "--variant", variant]
            jobs[f"paper3/{run}-{variant}-test-seed{seed}"] = Job(f"{run} {variant} {seed}", arguments, gigabytes)
    for run in paper2.PARTS["figure6"]:
        for seed in SEEDS:
            arguments = [*PAPER2, "--runs", run, "--seeds", str(seed)]
            jobs[f"paper2/{run}-test-seed{seed}"] = Job(f"{run} {seed}", arguments)
    return [job for file, job in jobs.items() if not (results / f"{file}.json").exists()]


def main(argv: Sequence[str] | None = None) -> None:
    """Run everything that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--gigabytes", type=float, default=128.0, help="memory of the GPU that may be taken")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--logs", type=Path, default=Path("runs", "remaining"))
    parser.add_argument("--list", action="store_true", help="only print the commands")
    args = parser.parse_args(argv)
    jobs = missing(RESULTS)
    if args.list:
        for one in jobs:
            print("python", *one.arguments)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
    Scheduler(args.processes, args.gigabytes, time.time() + 60 * args.minutes, args.logs).run(jobs)


if __name__ == "__main__":
    main()
