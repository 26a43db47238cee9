"""Numbers with what is known of their uncertainty, and what may be concluded from two of them."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Interval = tuple[float, float]

CONFIRMED = "confirmed"
NOT_CONFIRMED = "not confirmed"
UNDECIDED = "undecided (intervals overlap)"
UNMEASURED = "not measured"

# 97.5 % quantiles of Student's t, by degrees of freedom; beyond, the normal one is near enough.
_STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number, measured once for every seed, each time with its bootstrap interval where there is one."""

    by_seed: Mapping[int, float]
    intervals: Mapping[int, Interval] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Over seeds."""
        return statistics.fmean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds; None of a single one."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def times(self, factor: float) -> "Estimate":
        """The same, scaled by a positive factor."""
        scaled = {seed: (low * factor, high * factor) for seed, (low, high) in self.intervals.items()}
        return Estimate({seed: value * factor for seed, value in self.by_seed.items()}, scaled)

    def plus(self, term: float) -> "Estimate":
        """The same, moved by a constant."""
        moved = {seed: (low + term, high + term) for seed, (low, high) in self.intervals.items()}
        return Estimate({seed: value + term for seed, value in self.by_seed.items()}, moved)

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference on every seed that both have; its bootstrap interval reaches from worst to worst."""
        return self._with(other, lambda own, rival: own - rival)

    def over(self, other: "Estimate") -> "Estimate":
        """The quotient of positive numbers, in the same way."""
        return self._with(other, lambda own, rival: own / rival if rival else math.inf)

    def _with(self, other: "Estimate", combine: Callable[[float, float], float]) -> "Estimate":
        """Combine seed by seed; `combine` rises with the first and falls with the second."""
        seeds = sorted(self.by_seed.keys() & other.by_seed.keys())
        values = {seed: combine(self.by_seed[seed], other.by_seed[seed]) for seed in seeds}
        intervals = {}
        for seed in seeds:
            if seed in self.intervals and seed in other.intervals:
                (low, high), (rival_low, rival_high) = self.intervals[seed], other.intervals[seed]
                intervals[seed] = combine(low, rival_high), combine(high, rival_low)
        return Estimate(values, intervals)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the mean: Student's over seeds, or of a single one its own; None if it has none."""
        count = len(self.by_seed)
        if count == 1:
            return next(iter(self.intervals.values()), None)
        quantile = _STUDENT[count - 1] if count <= len(_STUDENT) else _NORMAL
        half = quantile * statistics.stdev(self.by_seed.values()) / math.sqrt(count)
        return self.mean - half, self.mean + half


def verdict(gain: Estimate, margin: float = 0.0) -> str:
    """Whether a gain is above zero, or, for "no worse than", above minus `margin`.

    Decided by the interval: all of it above confirms, all of it below refutes. For a single seed that is to ask whether
    the bootstrap intervals of the two sides are apart.
    """
    if not gain.by_seed:
        return UNMEASURED
    if gain.interval is None:
        return UNDECIDED
    low, high = gain.interval
    if low > -margin:
        return CONFIRMED
    return NOT_CONFIRMED if high < -margin else UNDECIDED
