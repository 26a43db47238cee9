"""Ctrl-C and SIGTERM while training: finish the step, save and exit."""

import signal
from types import FrameType
from typing import Any, Self

from sightline.cli.console import tell_at_once

_SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that stop a run, with their default handlers."""


class StopSignals:
    """Records whether Ctrl-C was pressed or SIGTERM sent, from the first call on; before that, they act as usual.

    This lets the current step finish and be saved. A second signal ends the run at once. speaks: whether to print
    messages.
    """

    def __init__(self, speaks: bool) -> None:
        self._speaks, self._heard = speaks, 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Return whether a signal was received; the first call starts listening."""
        for number, usual in _SIGNALS.items():
            if not self._heard and self._before[number] is usual:  # unless it is ignored
                signal.signal(number, self._hear)
        return bool(self._heard)

    @property
    def exit_code(self) -> int:
        """The exit code of a run that was ended by a signal."""
        return 128 + (self._heard or signal.SIGINT)

    def _hear(self, number: int, _: FrameType | None) -> None:
        for one, usual in _SIGNALS.items():
            if self._before[one] is usual:
                signal.signal(one, usual)
        self._heard = number
        if self._speaks:
            again = "Ctrl-C again" if number == signal.SIGINT else "a second SIGTERM"
            tell_at_once(f"finishing the current step, and its validation if one is due; {again} stops at once")
