"""What relations among instances cost in training (paper 2): steps per second with and without them, in one call.

    python -m replication.relations_cost

Trains `base-neighbours` and `fusion` in turn, twice each, without validation, and counts the seconds after the first
ten steps. Each takes two epochs over half of the images: batches of neighbours begin with the second. Needs a machine
that does nothing else, SIGHTLINE_DATA and SIGHTLINE_PRETRAINED.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.provenance import RESULTS, provenance, write_result
from replication.paper2 import BRIEF, RUNS
from replication.training_runs import train_once

TURNS = ("base-neighbours", "fusion") * 2
_SKIPPED = 10  # steps, with which kernels are chosen and memory is reserved


def seconds_per_step(log: Path) -> float:
    """Return the mean time of a step, from a run's log, without the first ones."""
    at = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    return float(at[-1] - at[_SKIPPED - 1]) / (len(at) - _SKIPPED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a change to both recipes")
    parser.add_argument("--brief", action="store_true", help="a few small steps, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "relations-cost.json")
    arguments = parser.parse_args()
    length = BRIEF if arguments.brief else ("schedule.epochs=2", "data.limit=3000", "validation.every=0")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for turn, name in enumerate(TURNS):
            run, out = RUNS[name], Path(folder, f"{turn}")
            cost = train_once(run.recipe, [*run.changes, "seed=0", *length, *arguments.changes], out)
            each = round(seconds_per_step(out / "log.jsonl"), 5)
            rows.append({"run": name, "steps": cost["steps"], "seconds": cost["seconds"], "seconds_per_step": each})
            print(f"{name}: {1000 * each:.1f} ms per step", flush=True)
    about = {"experiment": "relations-cost", **provenance(0, ["flickr8k-train"])}
    write_result(arguments.out, {**about, "rows": rows})


if __name__ == "__main__":
    main()
