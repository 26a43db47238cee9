"""Where the time of a job goes, and how much of it is left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_MARGIN = 0.9  # of the time that is left is planned with


@dataclass(slots=True)
class Stopwatch:
    """Adds up the seconds of each part of a job; 0 for a part that was not run."""

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
        """Count the time of a `with` block towards a part."""
        began = self.clock()
        try:
            yield
        finally:
            self.seconds[part] += self.clock() - began

    @property
    def milliseconds(self) -> dict[str, float]:
        """The same in milliseconds."""
        return {part: 1000 * spent for part, spent in self.seconds.items()}

    def left(self) -> float:
        """Seconds of the limit that may still be planned with; infinite without a limit."""
        return float("inf") if self.limit is None else _MARGIN * (self.limit - (self.clock() - self._started))


def search_stopwatch(budget_ms: float | None = None, clock: Callable[[], float] = time.perf_counter) -> Stopwatch:
    """A stopwatch for the parts of a search."""
    limit = None if budget_ms is None else budget_ms / 1000
    return Stopwatch(("encode", "retrieve", "interact", "match"), limit, clock)
