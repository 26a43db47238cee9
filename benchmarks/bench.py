"""Run the quick case of every speed benchmark, and print the ratios with their targets.

    python -m benchmarks.bench

Uses the photos of Flickr8k's test set if SIGHTLINE_DATA has it, and synthetic ones otherwise. Each benchmark runs in
its own process with a time limit; failures are listed at the end. A missed target is not a failure. Results are written
to benchmarks/results/quick.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.pages.targets import TARGETS
from benchmarks.provenance import RESULTS, ROOT

SCRIPTS = ("indexing", "retrieval", "late", "matching", "end_to_end", "evaluation", "training", "growing")
LIMIT = 180.0  # seconds for one benchmark


@dataclass(frozen=True, slots=True)
class Outcome:
    """The ratios of one benchmark, or what went wrong."""

    script: str
    seconds: float
    ratios: dict[str, float] = field(default_factory=dict)
    trouble: str = ""


def run(script: str, results: Path, limit: float = LIMIT, root: Path = ROOT) -> Outcome:
    """Run the quick case of a benchmark, and read its result."""
    path, began = results / f"{script}.json", time.perf_counter()
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"benchmarks.{script}", "--quick", "--json", str(path.resolve())]
    try:
        done = subprocess.run(command, cwd=root, timeout=limit, stderr=subprocess.PIPE, text=True, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(script, time.perf_counter() - began, trouble=f"took more than {limit:.0f} s")
    took = time.perf_counter() - began
    if done.returncode or not path.is_file():
        last = (done.stderr.strip().splitlines() or ["it wrote no result"])[-1]
        return Outcome(script, took, trouble=f"exit status {done.returncode}: {last}")
    return Outcome(script, took, json.loads(path.read_text(encoding="utf-8")).get("ratios", {}))


def table(outcomes: list[Outcome]) -> str:
    """Every ratio, with its target if it has one, such as `2.81x (target ≥ 3x)`."""
    targets = {(target.experiment, target.ratio): target for target in TARGETS}
    lines = []
    for outcome in outcomes:
        for what, value in outcome.ratios.items():
            target = targets.get((outcome.script, what))
            shown = f"{value:.3g}{target.unit} (target {target.bound})" if target else f"{value:.3g}"
            missed = "  missed" if target and not target.is_met(value) else ""
            lines.append((f"{outcome.script}: {what}", shown + missed))
    width = max((len(what) for what, _ in lines), default=0)
    return "\n".join(f"{what.ljust(width)}  {shown}" for what, shown in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS, help="which benchmarks; all by default")
    parser.add_argument("--results", type=Path, default=RESULTS / "quick", help="folder of the result files")
    arguments = parser.parse_args()
    outcomes = [run(script, arguments.results) for script in arguments.scripts]
    failed = [outcome for outcome in outcomes if outcome.trouble]
    print(f"\n{table(outcomes)}\n\n{sum(outcome.seconds for outcome in outcomes) / 60:.1f} minutes")
    for outcome in failed:
        print(f"{outcome.script} failed: {outcome.trouble}", file=sys.stderr)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
