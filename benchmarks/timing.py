"""What speed benchmarks have in common: their options, ways that are timed in turns, and the file that they write."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance

RESULTS = Path(__file__).resolve().parent / "results"


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every speed benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller case, in a minute or so")
    parser.add_argument("--json", type=Path, help="by default in benchmarks/results, or its folder quick")
    return parser


def in_turns(ways: Mapping[str, Callable[[], float | None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in so many rounds, one after the other so that noise meets all alike.

    A way may give the seconds that count; otherwise those of the whole call do. Every other round goes backwards. A
    round before the first, which loads what the others need, does not count.
    """
    names = list(ways)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        for name in names if number % 2 else reversed(names):
            began = time.perf_counter()
            own = ways[name]()
            if number >= 0:
                seconds[name].append(time.perf_counter() - began if own is None else own)
    return seconds


def best(run: Callable[[], object], rounds: int) -> float:
    """The least seconds of a few calls, after one that loads what they need."""
    run()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def write(
    name: str,
    arguments: argparse.Namespace,
    data: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    ratios: Mapping[str, float],
    **more: Any,
) -> None:
    """Write the result file of a benchmark, and print the one line that says what came of it.

    rows: what was measured. ratios: what follows from it, by what it is in plain words.
    """
    path: Path = arguments.json or (RESULTS / "quick" if arguments.quick else RESULTS) / f"{name}.json"
    result = {"experiment": name, **provenance(0, list(data)), "quick": arguments.quick, **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**result, "rows": rows, "ratios": ratios}, indent=1) + "\n", encoding="utf-8")
    told = "; ".join(f"{what}: {ratio:.3g}" for what, ratio in ratios.items())
    print(f"{name}: {told or 'nothing to compare with'}", flush=True)
