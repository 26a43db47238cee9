"""Numbers measured with one or more seeds, and differences between such numbers, each with a 95 % interval."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Interval = tuple[float, float]

# 97.5 % quantiles of Student's t, by degrees of freedom; beyond these, the normal quantile is close enough.
_STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number for each seed, with its bootstrap interval if there is one. Without seeds, it was not measured."""

    by_seed: Mapping[int, float]
    intervals: Mapping[int, Interval] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds; None with a single seed."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the mean: Student's t over seeds, or the bootstrap interval of a single seed."""
        count = len(self.by_seed)
        if count < 2:
            return next(iter(self.intervals.values()), None)
        quantile = _STUDENT[count - 1] if count <= len(_STUDENT) else _NORMAL
        half = quantile * statistics.stdev(self.by_seed.values()) / math.sqrt(count)
        return self.mean - half, self.mean + half

    def minus(self, other: "Estimate") -> "Estimate":
        """Return the difference for each common seed; bootstrap intervals are combined assuming the worst case."""
        return self._with(other, lambda own, rival: own - rival)

    def percent_of(self, other: "Estimate") -> "Estimate":
        """Return the ratio of positive numbers in percent, computed in the same way as `minus`."""
        return self._with(other, lambda own, rival: 100 * own / rival if rival else math.inf)

    def _with(self, other: "Estimate", combine: Callable[[float, float], float]) -> "Estimate":
        """Combine estimates by seed; `combine` must increase with its first argument and decrease with its second."""
        seeds = sorted(self.by_seed.keys() & other.by_seed.keys())
        values = {seed: combine(self.by_seed[seed], other.by_seed[seed]) for seed in seeds}
        intervals = {}
        for seed in seeds:
            if seed in self.intervals and seed in other.intervals:
                (low, high), (rival_low, rival_high) = self.intervals[seed], other.intervals[seed]
                intervals[seed] = combine(low, rival_high), combine(high, rival_low)
        return Estimate(values, intervals)
