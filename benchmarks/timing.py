"""Common parts of speed benchmarks: command-line options, timing alternatives in turns, and the result file."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance, write_result


def options(description: str | None, model: bool = True) -> argparse.ArgumentParser:
    """Return the options that every speed benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller case, in a minute or so")
    parser.add_argument("--json", type=Path, help="result file; by default in benchmarks/results, or its folder quick")
    if model:
        parser.add_argument("--model", default="default")
    return parser


def numbers(text: str) -> list[int]:
    """Parse `1000,5000` as a list, for options."""
    return [int(part) for part in text.split(",")]


def in_turns(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time each alternative, in seconds, `rounds` times; they take turns, so that noise affects all of them.

    An alternative may return the seconds to count; otherwise the whole call counts. Every other round runs in reverse
    order; a warm-up round is not counted.
    """
    names = list(ways)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        for name in names if number % 2 else reversed(names):
            began = time.perf_counter()
            own = ways[name]()
            if number >= 0:
                seconds[name].append(own if isinstance(own, float) else time.perf_counter() - began)
    return seconds


def best(run: Callable[[], object], rounds: int) -> float:
    """Return the time of the fastest of a few calls, in seconds, after a warm-up."""
    return min(in_turns({"": run}, rounds)[""])


def seconds_of(run: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def cpu_seconds_of(run: Callable[[], object]) -> float:
    """Return how many seconds of CPU time one call takes, over all threads; this hardly depends on other programs."""
    began = time.process_time()
    run()
    return time.process_time() - began


def in_a_process(module: str, *words: str, cores: int | None = None) -> Any:
    """Run `python -m MODULE WORDS`, on this many cores if given; returns the JSON in the last line of its output."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    environment = os.environ | ({} if cores is None else {"OMP_NUM_THREADS": str(cores)})
    done = subprocess.run([sys.executable, "-m", module, *words], check=True, stdout=subprocess.PIPE, text=True,
                          env=environment, preexec_fn=lambda: os.sched_setaffinity(0, chosen))  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    p50, p99 = np.percentile(milliseconds, (50, 99)).tolist()
    return {"p50_ms": p50, "p99_ms": p99}


def save(
    name: str,
    arguments: argparse.Namespace,
    data: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    ratios: Mapping[str, float],
    **more: Any,
) -> None:
    """Write the result file of a benchmark, and print its ratios in one line.

    rows: the measurements. ratios: numbers derived from them, by description.
    """
    quick = bool(getattr(arguments, "quick", False))
    path: Path = arguments.json or (RESULTS / "quick" if quick else RESULTS) / f"{name}.json"
    result = {"experiment": name, **provenance(0, list(data)), "quick": quick, **more, "rows": rows, "ratios": ratios}
    write_result(path, result)
    shown = "; ".join(f"{what}: {ratio:.3g}" for what, ratio in ratios.items())
    print(f"{name}: {shown or 'nothing to compare with'}", flush=True)
