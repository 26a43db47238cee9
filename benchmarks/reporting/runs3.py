"""The runs of paper 3's experiments, read by name, variant and seed."""

from collections.abc import Iterable, Mapping
from typing import Any

from reporting.estimates import Estimate
from reporting.results import R_SUM, Metric, ResultFile, estimate

TEST = "flickr8k-test"
PAPER = "paper"
_SWAPPED = {"B-F", "I-F", "I-B-F"}  # the only runs in which the variant of swapped temperatures differs


class Runs:
    """All runs of one variant on the test set; the files of `benchmarks/paper3.py`."""

    def __init__(self, files: Iterable[ResultFile], variant: str = PAPER) -> None:
        self.variant = variant
        self.files = [file for file in files if self._is_one(file.content)]

    def _is_one(self, content: Mapping[str, Any]) -> bool:
        shared = self.variant == "swapped" and content["run"] not in _SWAPPED
        return bool(content["result"]["data"] == TEST and content["variant"] == (PAPER if shared else self.variant))

    def files_of(self, *names: str) -> list[ResultFile]:
        """The files of runs of these names."""
        return [file for file in self.files if file.content["run"] in names]

    def estimate(self, name: str, metric: Metric = R_SUM) -> Estimate:
        """One number of a run, for every seed; empty where it was not measured."""
        return estimate({file.content["seed"]: file.content["result"] for file in self.files_of(name)}, metric)

    def gain(self, better: str, worse: str) -> Estimate:
        """How much higher the rSum of one run is than that of another.

        Its bootstrap interval is that of the same queries put to both, where the run was set against the other when it
        was measured; else it reaches from worst to worst.
        """
        apart = self.estimate(better).minus(self.estimate(worse))
        paired = {file.content["seed"]: file.content["gain_over"].get(worse) for file in self.files_of(better)}
        intervals = {
            seed: (gain["low"], gain["high"]) for seed, gain in paired.items() if gain and seed in apart.by_seed
        }
        return Estimate(apart.by_seed, {**apart.intervals, **intervals})


def variants(files: Iterable[ResultFile]) -> list[str]:
    """The variants that there are runs of, that of the paper first."""
    found = {file.content["variant"] for file in files if file.content["result"]["data"] == TEST}
    return sorted(found, key=lambda name: (name != PAPER, name))
