"""Runs a bundle's graph in torch on a GPU.

Products are computed in half precision with float32 accumulation, everything else in float32. Small batches of a shape
that recurs are captured as a CUDA graph, including copies from and to CPU memory: one launch instead of a hundred.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from sightline.arrays import Arrays
from sightline.device import CAPTURING
from sightline.errors import UnknownOperatorError
from sightline.kernels.operators import ON_PROCESSORS
from sightline.kernels.program import ExecutionPlan, Program

_SMALL = 64  # items; larger batches take longer to compute than to launch
_SHAPES = 64  # input shapes whose plans are kept
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # none that tunes per shape
_turn = threading.Lock()  # one graph runs at a time: captured graphs share memory

Shapes = tuple[tuple[str, tuple[int, ...], torch.dtype, str], ...]
"""The name, shape and type of every input, and its kind of device."""
Steps = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]


class TorchGraph:
    """A graph in torch, on the device of its program. Thread-safe."""

    def __init__(self, program: Program) -> None:
        self.outputs = program.outputs
        self.device = program.device
        self.program = program
        self._plans: OrderedDict[Shapes, _Planned] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle() if program.device.type == "cuda" else None

    @classmethod
    def open(cls, path: Path, device: str) -> "TorchGraph":
        """Open an ONNX file and run it once, so that an unsupported graph fails here."""
        chosen = torch.device(device)
        try:
            opened = cls(Program.read(path, chosen, torch.float16 if chosen.type == "cuda" else torch.float32))
            opened.compute({name: one.example(2, chosen) for name, one in opened.program.inputs.items()})
        except UnknownOperatorError as error:
            raise UnknownOperatorError(f"{path}: {error.what}", error.way_out) from error
        except RuntimeError as error:
            raise UnknownOperatorError(f"torch cannot run {path}: {error}", ON_PROCESSORS) from error
        return opened

    def run(self, inputs: Arrays) -> Arrays:
        """Run the graph. Arrays are converted on the device, after copying: float16 states become float32."""
        given = {name: _tensor(array) for name, array in inputs.items()}
        if self._pool is not None and not _are_few(given):
            given = {name: values.pin_memory() for name, values in given.items()}  # before the lock is taken
        return {name: found.numpy() for name, found in self.compute(given).items()}

    @torch.inference_mode()
    def compute(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the graph on tensors on any device; returns outputs in CPU memory."""
        with _turn:
            shapes = tuple((name, tuple(of.shape), of.dtype, of.device.type) for name, of in sorted(inputs.items()))
            planned = self._plans.pop(shapes, None)
            if planned is None:
                with sdpa_kernel(_ATTENTION):
                    plan, found = self.program.plan(self._on_device(inputs))
                planned = _Planned(plan)
            elif self._pool is not None and _are_few(inputs):
                if planned.captured is None:
                    planned.captured = Captured.of(partial(self._steps, planned.plan), inputs, self.device, self._pool)
                found = planned.captured.run(inputs)
            else:
                found = self._steps(planned.plan, inputs)
            self._plans[shapes] = planned
            while len(self._plans) > _SHAPES:
                self._plans.popitem(last=False)  # the least recently used shape
            return {name: values.cpu() for name, values in found.items()}

    def _steps(self, plan: ExecutionPlan, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with sdpa_kernel(_ATTENTION):
            return plan.run(self._on_device(inputs))

    def _on_device(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs on the device, converted there to the graph's input types."""
        sent = {name: values.to(self.device, non_blocking=True) for name, values in inputs.items()}
        return {name: values.to(self.program.inputs[name].dtype) for name, values in sent.items()}


@dataclass(slots=True)
class _Planned:
    """The plan for inputs of certain shapes; captured when those shapes occur a second time."""

    plan: ExecutionPlan
    captured: "Captured | None" = None


@dataclass(frozen=True, slots=True)
class Captured:
    """Steps captured as a CUDA graph with fixed memory for inputs and outputs.

    Outputs are in CPU memory, and so are the inputs if they were given there; copying both is part of the graph.
    """

    graph: torch.cuda.CUDAGraph
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    device: torch.device

    @classmethod
    def of(cls, steps: Steps, inputs: Mapping[str, Tensor], device: torch.device, pool: Any) -> "Captured":
        """Capture steps that have run before. Graphs of one pool share the memory of intermediate values."""
        fixed = {
            name: torch.empty_like(values, pin_memory=values.device.type == "cpu").copy_(values)
            for name, values in inputs.items()
        }
        graph, aside = torch.cuda.CUDAGraph(), _stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            found = steps(fixed)  # initialises libraries for this thread and stream, which cannot be captured
        fetched = {name: torch.empty(of.shape, dtype=of.dtype, pin_memory=True) for name, of in found.items()}
        with CAPTURING, torch.cuda.graph(graph, pool, aside, capture_error_mode="thread_local"):
            for name, values in steps(fixed).items():
                fetched[name].copy_(values, non_blocking=True)
        return cls(graph, fixed, fetched, device)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the graph on other inputs of the same shapes."""
        for name, values in inputs.items():
            self.inputs[name].copy_(values)
        self.graph.replay()
        torch.cuda.current_stream(self.device).synchronize()
        return {name: values.clone() for name, values in self.outputs.items()}


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for capturing graphs; all share it, because every stream has its own workspace for products."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _are_few(inputs: Mapping[str, Tensor]) -> bool:
    return all(len(values) <= _SMALL for values in inputs.values())


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C_CONTIGUOUS", "WRITEABLE"]))
