"""When to save the state of a run: after a number of steps, or a number of minutes."""

import time
from collections.abc import Callable

from sightline.training.tables import SaveInterval


class SaveTimer:
    """Decides when a save is due.

    every: as `checkpoint.every` in a recipe: a number of steps, or minutes as in "10m".

    >>> SaveTimer(500).is_due(1000)
    True
    """

    def __init__(self, every: int | str, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock = SaveInterval.parse(every, "checkpoint.every"), clock
        self._saved = clock()

    def is_due(self, step: int) -> bool:
        """Return whether to save after `step` steps."""
        if self._every.steps:
            return step % self._every.steps == 0
        return self._clock() - self._saved >= self._every.seconds

    def reset(self) -> None:
        """Restart the clock, after a save."""
        self._saved = self._clock()
