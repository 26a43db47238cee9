"""Train and measure what the tables still lack, side by side on one GPU: the rest of papers 2 and 3.

    python -m replication.remaining --processes 12 --gigabytes 128 --minutes 26

Each run is a command of `replication.paper2` or `replication.paper3`, so a repeated call goes on where the last one
ended. Runs whose results exist are left out, except teachers, whose checkpoints are needed. Temperatures of paper 3 are
chosen on val before the models that use them are trained; enter them as CHOSEN in `paper3.py` afterwards.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.provenance import RESULTS
from replication import paper2, paper3
from replication.scheduler import Job, Scheduler

SEEDS = (0, 1, 2)
PAPER2 = ["-m", "replication.paper2", "--set", "schedule.epochs=15"]
PAPER3 = ["-m", "replication.paper3"]
TRIED = {
    "I-B-F": ("0.125x0.04", "0.125x0.08", "0.25x0.04", "0.25x0.08", "0.25x0.16", "0.5x0.08", "0.5x0.16"),
    "I-F": ("2x0.02", "2x0.04", "4x0.04"),
    "B-F": ("2x0.16", "2x0.32", "4x0.16", "4x0.32"),
}
"""Temperatures of the teacher and the student to try on val, with the best so far among them."""
GIGABYTES = {"I16": 20.0, "I32": 25.0, "I64": 36.0, "I-B": 12.0}


def job(name: str, seed: int, after: Sequence[str] = (), variant: str = "kl", split: str = "test") -> Job:
    """Return the job of a run of paper 3."""
    arguments = [*PAPER3, "--runs", name, "--seeds", str(seed), "--variant", variant]
    arguments += ["--split", split] if split != "test" else []
    label = f"{name} {seed}" if variant == "kl" else f"{name} {variant} {seed}"
    return Job(label, arguments, GIGABYTES.get(name, 6.0), tuple(after))


def teachers() -> list[Job]:
    """Return the models that others are distilled from, in the order in which they are needed."""
    inflated = [job("I32", seed) for seed in SEEDS]
    return [*inflated, job("B", 0), *(job("I-B", seed, [f"I32 {seed}"]) for seed in SEEDS)]


def best_pair(name: str, results: Path) -> str:
    """Return the best temperatures on val among those that were measured."""
    files = {pair: results / "paper3" / "val" / f"{name}@{pair}-kl-val-seed0.json" for pair in TRIED[name]}
    found = {pair: json.loads(path.read_text())["result"]["rSum"] for pair, path in files.items() if path.exists()}
    return max(found, key=lambda pair: found[pair])


def with_chosen(name: str, seed: int, results: Path) -> list[str] | None:
    """Return the arguments of a distilled run; None if it was already measured with the best temperatures."""
    pair, teacher = best_pair(name, results), paper3.RUNS[name].teacher
    if paper3.pair_of(pair) == paper3.CHOSEN[teacher] and name != "I-B-F":
        return None
    return [*PAPER3, "--runs", name, "--seeds", str(seed), "--variant", "kl", "--chosen", f"{teacher}={pair}"]


def distilled(results: Path) -> list[Job]:
    """Return the runs that choose temperatures, and those that use them."""
    made = []
    for name, pairs in TRIED.items():
        teacher = paper3.RUNS[name].teacher
        tries = [job(f"{name}@{pair}", 0, [f"{teacher} 0"], split="val") for pair in pairs]
        made += tries
        for seed in SEEDS:
            after = (f"{teacher} {seed}",) if name != "B-F" else ()
            arguments = partial(with_chosen, name, seed, results)
            made.append(Job(f"{name} {seed}", arguments, after=after, tries=tuple(one.name for one in tries)))
    return made


def others(results: Path) -> list[Job]:
    """Return the runs that no other run needs, and whose results do not exist."""
    sizes = [*(job("I64", seed) for seed in (1, 2)), *(job("I16", seed) for seed in SEEDS)]
    files = {one.name: f"{one.name.replace(' ', '-paper-test-seed')}.json" for one in sizes}
    contrastive = [job("I32", seed, variant="contrastive") for seed in SEEDS]
    files |= {f"I32 contrastive {seed}": f"I32-contrastive-test-seed{seed}.json" for seed in SEEDS}
    made = [one for one in (*sizes, *contrastive) if not (results / "paper3" / files[one.name]).exists()]
    for name in paper2.PARTS["figure6"]:
        for seed in SEEDS:
            if not (results / "paper2" / f"{name}-test-seed{seed}.json").exists():
                made.append(Job(f"{name} {seed}", [*PAPER2, "--runs", name, "--seeds", str(seed)], 5.0))
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run everything that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--gigabytes", type=float, default=128.0, help="memory of the GPU that may be taken")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--logs", type=Path, default=Path("runs", "remaining"))
    parser.add_argument("--list", action="store_true", help="only print the commands")
    args = parser.parse_args(argv)
    jobs = [*teachers(), *distilled(RESULTS), *others(RESULTS)]
    if args.list:
        for one in jobs:
            print(one.name, "after choosing temperatures" if callable(one.arguments) else " ".join(one.arguments))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
    Scheduler(args.processes, args.gigabytes, time.time() + 60 * args.minutes, args.logs).run(jobs)


if __name__ == "__main__":
    main()
