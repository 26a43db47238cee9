"""The log of a run's steps, written without making the CPU wait for the GPU."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sightline.errors import SightlineError
from sightline.training.curves import CurveSink
from sightline.training.run_folder import RunFolder

StepReport = Callable[[dict[str, Any]], None]
"""Called with every logged step: step, steps, losses and their components, rate, source, seconds, validation."""


class StepValues:
    """The losses, their components and the gradient norm of a step, being copied from the device.

    Reading them waits for the step to end, so do it after launching the next one. It raises an error if a number is not
    finite, so do it before saving the weights.
    """

    def __init__(
        self,
        step: int,
        losses: Mapping[str, Tensor],
        parts: Mapping[str, Mapping[str, Tensor]],
        norm: Tensor | None = None,
        temperatures: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._step, self._losses = step, list(losses)
        self._has_norm, self._temperatures = norm is not None, list(temperatures or ())
        self._parts = {name: list(some) for name, some in parts.items()}
        self._checked = [f'the loss "{name}"' for name in losses] + ([] if norm is None else ["the gradient"])
        values = [*losses.values(), *([] if norm is None else [norm])]
        values += [value for some in parts.values() for value in some.values()]
        values += list((temperatures or {}).values())
        self._numbers = torch.stack([value.detach().float() for value in values])
        self._event: torch.cuda.Event | None = None
        if self._numbers.is_cuda:
            pinned = torch.empty(self._numbers.shape, pin_memory=True)
            self._numbers = pinned.copy_(self._numbers, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def read(self) -> dict[str, Any]:
        """Return the entries for the log: losses, and components, gradient norm and temperatures if there are any."""
        if self._event is not None:
            self._event.synchronize()
        values = self._numbers.tolist()
        for what, value in zip(self._checked, values, strict=False):
            if not math.isfinite(value):
                raise SightlineError(
                    f"{what} is {value} at step {self._step + 1}", "Lower the learning rate, or clip the gradient."
                )
        rest = iter(values[len(self._checked) :])
        parts = {name: {part: next(rest) for part in some} for name, some in self._parts.items()}
        found: dict[str, Any] = {"loss": dict(zip(self._losses, values, strict=False))}
        found |= {"parts": parts} if parts else {}
        found |= {"norm": values[len(self._losses)]} if self._has_norm else {}
        temperatures = dict(zip(self._temperatures, rest, strict=True))
        return found | ({"temperature": temperatures} if temperatures else {})


class StepLog:
    """Log entries whose numbers may not have arrived yet: each is written and reported once they are read."""

    def __init__(self, folder: RunFolder | None, report: StepReport | None, sinks: Sequence[CurveSink] = ()) -> None:
        self._folder, self._report, self._sinks = folder, report, sinks
        self._waiting: list[tuple[dict[str, Any], StepValues]] = []
        self._ready: list[dict[str, Any]] = []
        self._written: list[dict[str, Any]] = []
        self._started = time.monotonic()

    def add(self, entry: dict[str, Any], values: StepValues) -> None:
        """Add a launched step, and read the previous one."""
        self.read()
        self._waiting.append((entry, values))

    def read(self) -> None:
        """Wait for the numbers of every step so far."""
        for entry, values in self._waiting:
            entry |= values.read()
            self._ready.append(entry)
        self._waiting.clear()

    def write(self) -> None:
        """Write the entries whose numbers have been read."""
        for entry in self._ready:
            entry["seconds"] = round(time.monotonic() - self._started, 3)
            if self._folder is not None:
                self._folder.log(entry)
            for sink in self._sinks:
                sink(entry)
        self._written += self._ready
        self._ready.clear()

    def report(self) -> None:
        """Report the entries that were written."""
        written, self._written = self._written, []
        for entry in written:
            if self._report is not None:
                self._report(entry)
