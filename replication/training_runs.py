"""Cached training runs and measurements: a repeated call continues where the last one stopped, and redoes no work."""

import argparse
import fcntl
import io
import json
import os
import shutil
import time
import tomllib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.provenance import RESULTS, ROOT, write_result
from sightline.cli.progress import training
from sightline.files import write_atomic
from sightline.training.provenance import weights
from sightline.training.recipe import read_recipe
from sightline.training.run_folder import RunFolder, differences
from sightline.training.trainer import train

RECIPES = ROOT / "recipes"
NOTE = "done"
SAVE_EVERY = 2000  # the most steps that can be lost; on a GPU about a minute's work, and saving takes a second


class Measured(NamedTuple):
    """The measurements of a run: JSON values with their provenance, and arrays by name."""

    about: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def train_once(recipe: str, changes: Sequence[str], out: Path) -> dict[str, Any]:
    """Train with a recipe in a folder, resuming an unfinished run; does nothing if it is finished. Returns the cost.

    Only the checkpoint and the log of a run are kept, because dozens of runs share a disk. A finished run is refused if
    it had other changes or other settings in the recipe, or if the models it started or learned from have changed.
    """
    note, file = out / NOTE, RECIPES / f"{recipe}.toml"
    made, settings = read_recipe(file, changes), tomllib.loads(file.read_text(encoding="utf-8"))
    with locked(out):
        if not note.exists():
            before, began = _seconds_before(out / "log.jsonl"), time.perf_counter()
            with training() as report:
                steps = train(made, out, resume=True, report=report, save_every=SAVE_EVERY).steps
            seconds = round(before + time.perf_counter() - began, 1)
            cost = {"recipe": f"recipes/{file.name}", "changes": list(changes), "steps": steps, "seconds": seconds}
            cost |= {"val": _curve(out / "log.jsonl")}
            write_atomic(note, json.dumps({"cost": cost, "settings": settings}))
            shutil.rmtree(out / "last")
    noted = json.loads(note.read_text())
    found: dict[str, Any] = noted["cost"]
    if found["changes"] != list(changes):
        raise SystemExit(f"{out} was trained with {found['changes']}, but now {list(changes)} is requested")
    changed = differences(noted["settings"], settings) + differences(_weights(out), weights(made))
    if changed:
        raise SystemExit(f"{out} was trained with something else ({'; '.join(changed)}); delete it to train it again")
    return found


def _weights(out: Path) -> dict[str, Any]:
    """Return the weights that a run started from, and those of its teacher."""
    made_of = RunFolder(out).provenance() or {}
    return {name: made_of[name] for name in ("initial_weights", "teacher") if name in made_of}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let only one process at a time make a file or folder, while others that need it wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _seconds_before(log: Path) -> float:
    """Return how long the earlier parts of a run took, from its log, in which the clock restarts with every part."""
    seconds = [entry["seconds"] for entry in _entries(log)]
    return float(sum(one for one, after in pairwise([*seconds, 0.0]) if after < one))


def _curve(log: Path) -> list[dict[str, float]]:
    """Return the recalls on the validation data by step; of a step that was repeated, the last ones."""
    validated = {entry["step"]: entry["val"] for entry in _entries(log) if "val" in entry}
    return [
        {"step": step, "t2i R@1": found["t2i"]["R@1"], "rSum": round(found["rSum"], 2)}
        for step, found in sorted(validated.items())
    ]


def _entries(log: Path) -> list[dict[str, Any]]:
    """Return the entries of a log, without a line that was cut off."""
    return [json.loads(line) for line in (log.read_text().split("\n")[:-1] if log.exists() else ())]


def measure_once(path: Path, measure: Callable[[], Measured]) -> Measured:
    """Run a measurement, unless its result is already saved in the file."""
    if not path.exists():
        found = measure()
        content = io.BytesIO()
        np.savez(content, about=np.array(json.dumps(found.about)), **found.arrays)  # type: ignore[arg-type]
        write_atomic(path, content.getvalue())
    with np.load(path) as kept:
        arrays = {name: kept[name] for name in kept.files if name != "about"}
        return Measured(json.loads(str(kept["about"])), arrays)


def options(
    description: str | None, paper: str, runs: str, every: Sequence[str], parts: Mapping[str, Sequence[str]]
) -> argparse.ArgumentParser:
    """Return the command-line options of all papers' scripts; parts: the runs or variants of each table or figure."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=parts, help="a table or figure of the paper")
    parser.add_argument("--runs", default=runs, help=f"among {', '.join(every)}; --part chooses them for you")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a change to every recipe")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time, all on one GPU")
    parser.add_argument("--brief", action="store_true", help="a few small steps, to see that it runs")
    parser.add_argument("--work", type=Path, default=Path("runs", paper), help="where checkpoints are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / paper, help="with --brief, the default is in runs/brief")
    parser.set_defaults(every=tuple(every))
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line and check the runs; with --brief, nothing is kept where complete runs are, by default."""
    arguments = parser.parse_args()
    unknown = [run for run in arguments.runs.split(",") if run not in arguments.every]
    if unknown:
        parser.error(f"--runs: {unknown[0]} is not among {', '.join(arguments.every)}")
    for variable in ("SIGHTLINE_DATA", "SIGHTLINE_PRETRAINED"):
        if not os.environ.get(variable):
            parser.error(f"the environment variable {variable} is not set: see replication/README.md")
    if arguments.brief:
        for name in ("work", "out"):
            if getattr(arguments, name) == parser.get_default(name):
                setattr(arguments, name, Path("runs", "brief", name, getattr(arguments, name).name))
    return arguments


def write_results(
    arguments: argparse.Namespace,
    parts: Mapping[str, Sequence[str]],
    suffix: str,
    result_of: Callable[[str, int], dict[str, Any]],
) -> None:
    """Compute the result of every requested run and seed, and write each to a file.

    The file is named after the run, its variant if it has one, and `suffix`.
    """
    names = parts[arguments.part] if arguments.part else arguments.runs.split(",")
    runs = [(int(seed), name) for seed in arguments.seeds.split(",") for name in names]
    out = arguments.out / "val" if getattr(arguments, "split", "test") == "val" else arguments.out  # not on the page
    run_all(arguments.processes, {run: partial(_write_result, out, suffix, result_of, *run) for run in runs})


def run_all(processes: int, tasks: Mapping[Hashable, Callable[[], object]]) -> None:
    """Run tasks, several at a time, which share the cores; with several, one that fails does not stop the others."""
    if processes == 1:
        for left, task in zip(reversed(range(len(tasks))), tasks.values(), strict=True):
            task()
            print(f"runs left: {left}", flush=True)
        return
    context = get_context("fork")  # forks share what is already in memory
    threads = max(1, torch.get_num_threads() // processes)
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (threads,)) as pool:
        waiting = {name: pool.submit(_run, task) for name, task in tasks.items()}
    failed = [f"{name}: {one.exception()}" for name, one in waiting.items() if one.exception()]
    if failed:
        raise SystemExit("\n".join(["these runs failed:", *failed]))


def _run(task: Callable[[], object]) -> None:
    """Run a task in another process, without sending its result back."""
    task()


def _write_result(out: Path, suffix: str, result_of: Callable[[str, int], dict[str, Any]], seed: int, run: str) -> None:
    result = result_of(run, seed)
    name = "-".join([run, *filter(None, [result.get("variant")]), suffix, f"seed{seed}"])
    write_result(out / f"{name}.json", result)
    found = result.get("result") or result["test"]
    print(f"{name}: rSum {found['rSum']:.1f}, gains {result.get('gain_over', {})}", flush=True)
