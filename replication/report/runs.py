"""The runs of a paper's experiments by name and seed, and the claims that are made of their gains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from benchmarks.pages.markdown import Finding
from replication.report.estimates import Estimate
from replication.report.results import R_SUM, Metric, ResultFile, estimate


class Measured(Protocol):
    """Gains of one run over another: our own, or those of a paper."""

    def gain(self, better: str, worse: str) -> Estimate:
        """How much higher the sum of recalls of one run is; empty where one of them was not measured."""


Claims = Callable[[Measured], list[Finding]]


class Runs:
    """Result files of runs, each with its name, its seed, its result, and what it gains over others."""

    def __init__(self, files: Iterable[ResultFile], result: str = "result") -> None:
        self.files, self._result = list(files), result

    def files_of(self, *names: str) -> list[ResultFile]:
        """The files of runs of these names."""
        return [file for file in self.files if file.content["run"] in names]

    def estimate(self, name: str, metric: Metric = R_SUM) -> Estimate:
        """One number of a run, for every seed; empty where it was not measured."""
        return estimate({file.content["seed"]: file.content[self._result] for file in self.files_of(name)}, metric)

    def gain(self, better: str, worse: str) -> Estimate:
        """How much higher the rSum of one run is than that of another.

        Its bootstrap interval is that of the same queries put to both, where one was set against the other when it was
        measured; else it reaches from worst to worst.
        """
        apart = self.estimate(better).minus(self.estimate(worse))
        intervals = {seed: (-high, -low) for seed, (low, high) in self._paired(worse, better).items()}
        intervals |= self._paired(better, worse)
        known = {seed: interval for seed, interval in intervals.items() if seed in apart.by_seed}
        return Estimate(apart.by_seed, {**apart.intervals, **known})

    def _paired(self, name: str, other: str) -> dict[int, tuple[float, float]]:
        """By seed, the interval of what a run gains over another, where its file says so."""
        gains = {file.content["seed"]: file.content["gain_over"].get(other) for file in self.files_of(name)}
        return {seed: (gain["low"], gain["high"]) for seed, gain in gains.items() if gain}

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of the names that there is no run of."""
        return [name for name in names if not self.files_of(name)]


class Reported:
    """The recalls of a paper's runs, to be asked for gains as our own are."""

    def __init__(self, rows: Mapping[str, tuple[float, ...]]) -> None:
        self.rows = rows

    def gain(self, better: str, worse: str) -> Estimate:
        """How much higher the sum of one run's recalls is; empty where the paper lacks one of them."""
        if not {better, worse} <= self.rows.keys():
            return Estimate({})
        return Estimate({0: sum(self.rows[better]) - sum(self.rows[worse])})


def judged(claims: Claims, runs: Measured, paper: Measured) -> list[Finding]:
    """The claims of our numbers, with the paper's gains beside them; what is unmeasured on our side is left out."""
    there = [claim.gain.mean if claim.gain.by_seed else None for claim in claims(paper)]
    made = [replace(claim, reported=gain) for claim, gain in zip(claims(runs), there, strict=True)]
    return [claim for claim in made if claim.gain.by_seed]
