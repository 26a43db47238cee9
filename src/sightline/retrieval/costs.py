"""Timing of searches: a stopwatch for their parts, and the measured cost of stages, to stay within a time limit."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sightline.cache import load_cached, save_cached
from sightline.retrieval.stages import StageName

Timing = tuple[int, float]
"""How many items a stage scored, and how many seconds it took."""

_FILE = "costs"
_KEPT = 25  # latest samples kept per stage
_FEW = 5  # samples; while a stage has no more than this, every new sample is saved at once
_SAVE_SECONDS = 10.0  # minimum time between two saves after that


class Cost(NamedTuple):
    """How long a stage takes, in seconds: `fixed` per call plus `each` per item."""

    fixed: float
    each: float

    def affordable(self, seconds: float) -> int:
        """Return how many items can be scored in this time."""
        return max(0, int((seconds - self.fixed) / self.each)) if self.each > 0 else 1_000_000


def fit(samples: list[Timing]) -> Cost:
    """Fit a line through the samples by medians, so that outliers have little effect.

    >>> fit([(1, 0.03), (11, 0.13), (21, 0.23), (20, 9.0)])
    Cost(fixed=0.02, each=0.01)
    """
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, later in enumerate(samples)
        for earlier in samples[:place]
        if later[0] != earlier[0]
    ]
    each = float(np.median(slopes)) if slopes else 0.0
    if each <= 0:
        each = float(np.median([seconds / items for items, seconds in samples]))
    fixed = float(np.median([seconds - each * items for items, seconds in samples]))
    return Cost(round(max(0.0, fixed), 9), round(each, 9))


class Costs:
    """The costs of one model's stages, saved between runs. Thread-safe."""

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.model = model
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: dict[str, list[Timing]] | None = None
        self._saved = -_SAVE_SECONDS

    def of(self, stage: StageName) -> Cost | None:
        """Return the cost of a stage; None if it was never measured."""
        with self._lock:
            samples = self._known().get(stage)
            return fit(samples) if samples else None

    def affordable(self, stage: StageName, seconds: float) -> int | None:
        """Return how many items a stage can score in this time; None if it was never measured.

        If every sample has exactly that many items, one more is tried: the cost per item and the fixed cost can
        be separated only with samples of different sizes.
        """
        with self._lock:
            samples = self._known().get(stage)
            if not samples:
                return None
            count = fit(samples).affordable(seconds)
            return count + 1 if {items for items, _ in samples} == {count} else count

    def note(self, stage: StageName, items: int, seconds: float) -> None:
        """Record that a stage scored this many items in this time."""
        if items < 1:
            return
        with self._lock:
            samples = self._known()
            samples[stage] = [*samples.get(stage, []), (items, seconds)][-_KEPT:]
            if len(samples[stage]) <= _FEW or self._clock() - self._saved >= _SAVE_SECONDS:
                self._saved = self._clock()
                save_cached(_FILE, {**load_cached(_FILE), self.model: samples})

    def _known(self) -> dict[str, list[Timing]]:
        if self._samples is None:
            self._samples = _checked(load_cached(_FILE).get(self.model))
        return self._samples


def _checked(found: object) -> dict[str, list[Timing]]:
    """Return the stored samples; invalid ones are ignored."""
    try:
        return {
            str(stage): [(int(items), float(seconds)) for items, seconds in samples if items >= 1 and seconds >= 0]
            for stage, samples in found.items()  # type: ignore[attr-defined]
        }
    except (AttributeError, TypeError, ValueError):
        return {}


_MARGIN = 0.9  # fraction of the remaining time that may be planned


@dataclass(slots=True)
class Stopwatch:
    """Adds up the time that each part of a job takes; 0 for a part that was not run."""

    parts: tuple[str, ...]
    limit: float | None = None
    clock: Callable[[], float] = time.perf_counter
    seconds: dict[str, float] = field(init=False)
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = dict.fromkeys(self.parts, 0.0)
        self._started = self.clock()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time spent in a `with` block to a part."""
        began = self.clock()
        try:
            yield
        finally:
            self.seconds[part] += self.clock() - began

    @property
    def milliseconds(self) -> dict[str, float]:
        """The time of each part in milliseconds."""
        return {part: 1000 * spent for part, spent in self.seconds.items()}

    def left(self) -> float:
        """Return how many seconds of the time limit are left to plan with; infinite without a limit."""
        return float("inf") if self.limit is None else _MARGIN * (self.limit - (self.clock() - self._started))


def search_stopwatch(budget_ms: float | None = None, clock: Callable[[], float] = time.perf_counter) -> Stopwatch:
    """Return a stopwatch for the parts of a search."""
    limit = None if budget_ms is None else budget_ms / 1000
    return Stopwatch(("encode", "retrieve", "interact", "match"), limit, clock)
