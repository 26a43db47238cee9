"""Run the quick case of every speed benchmark, and print the ratios with their targets.

    python -m benchmarks.bench

Uses the photos of Flickr8k's test set if SIGHTLINE_DATA has it, and synthetic ones otherwise. Each benchmark runs in
its own process with a time limit; failures are listed at the end. A missed target is not a failure. Results are written
to benchmarks/results/quick.
"""

import argparse
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.provenance import RESULTS, ROOT, read_result

SCRIPTS = ("indexing", "retrieval", "late", "matching", "end_to_end", "evaluation", "training", "growing")
LIMIT = 180.0  # seconds for one benchmark
FAILURES = (subprocess.TimeoutExpired, subprocess.CalledProcessError, FileNotFoundError)


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio in a result file, and its lower (`at_least`) or upper (`at_most`) bound."""

    what: str
    experiment: str
    ratio: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    @property
    def bound(self) -> str:
        """The bound as text, such as `≥ 3x`."""
        return f"≥ {self.at_least:g}{self.unit}" if self.at_least is not None else f"≤ {self.at_most:g}{self.unit}"

    def is_met(self, value: float) -> bool:
        """Return whether a measured value meets the target."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


TARGETS = tuple(
    Target(**fields)
    for fields in tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))["targets"]
)


def run(script: str, results: Path, limit: float = LIMIT, root: Path = ROOT) -> dict[str, float]:
    """Run the quick case of a benchmark, and return its ratios; raises one of FAILURES if it has no result."""
    path = results / f"{script}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"benchmarks.{script}", "--quick", "--json", str(path.resolve())]
    subprocess.run(command, cwd=root, timeout=limit, check=True)
    ratios: dict[str, float] = read_result(path)["ratios"]
    return ratios


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the ratios of each benchmark, with the target if there is one, such as `2.81x (target ≥ 3x)`."""
    targets = {(target.experiment, target.ratio): target for target in TARGETS}
    lines = []
    for script, ratios in found.items():
        for what, value in ratios.items():
            target = targets.get((script, what))
            shown = f"{value:.3g}{target.unit} (target {target.bound})" if target else f"{value:.3g}"
            missed = "  missed" if target and not target.is_met(value) else ""
            lines.append((f"{script}: {what}", shown + missed))
    width = max((len(what) for what, _ in lines), default=0)
    return "\n".join(f"{what.ljust(width)}  {shown}" for what, shown in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS, help="which benchmarks; all by default")
    arguments = parser.parse_args()
    began, found, failed = time.perf_counter(), {}, []
    for script in arguments.scripts:
        try:
            found[script] = run(script, RESULTS / "quick")
        except FAILURES as error:
            failed.append(f"{script} failed: {error}")
    print(f"\n{table(found)}\n\n{(time.perf_counter() - began) / 60:.1f} minutes")
    raise SystemExit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
