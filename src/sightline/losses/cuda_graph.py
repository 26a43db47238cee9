"""CUDA graphs for a loss: its forward and backward passes are captured once, then replayed.

A loss made of hundreds of small operations spends most of its time launching them. A CUDA graph launches all at once.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sightline.errors import SightlineError

Function = Callable[..., tuple[Tensor, ...]]
MOST = 8
"""The number of graphs to keep, one for each combination of shapes. Further shapes are computed without a graph."""
SIGHTS = 3
"""How often a combination of shapes must occur before it is captured: a capture takes as long as many steps."""
_WARM_UP = 3


@dataclass(slots=True)
class _Recordings:
    """CUDA graphs by input shapes. places: addresses of the weights that they use; most: how many graphs to keep."""

    places: tuple[Any, ...]
    by_key: dict[Any, Function] = field(default_factory=dict)
    sights: Counter[Any] = field(default_factory=Counter)
    memory: Any = None
    most: int = field(default_factory=lambda: MOST)


class CapturedFunction:
    """A function of a module and tensors, captured for each combination of shapes that occurs several times.

    The function must not synchronise with the GPU, nor branch on tensor values; random numbers must come from the GPU's
    default generator, which a replay advances as well. A replay uses the module's current weights, but its settings at
    the time of capture.

    Call backward once, before the function is called again: a graph has memory for one batch. Graphs are not copied
    with the module, because they belong to its weights.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._kept = _Recordings(())
        self.turn = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function,)

    def __call__(self, owner: nn.Module, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Call the function, through a CUDA graph if one exists or can be captured."""
        weights = tuple(owner.parameters())
        places = tuple((one.data_ptr(), one.requires_grad) for one in weights)
        if places != self._kept.places:
            self._kept = _Recordings(places)
        key = owner.training, *((one.shape, one.dtype, one.device, one.requires_grad) for one in inputs)
        if key not in self._kept.by_key and not self._record(key, owner, inputs):
            return self._function(owner, *inputs)
        self.turn += 1
        tensors = _Once.apply(self, self.turn, *weights, *inputs)  # type: ignore[no-untyped-call]
        return tuple(one.clone() for one in self._kept.by_key[key](*tensors))

    def _record(self, key: Any, owner: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
        """Capture the function for these input shapes if they recur and there is room; return whether that was done."""
        kept = self._kept
        kept.sights[key] += 1
        if kept.sights[key] < SIGHTS or len(kept.by_key) >= kept.most:
            return False
        try:
            with _undisturbed(inputs[0].device):
                kept.by_key[key] = self._recording(owner, inputs)
        except torch.cuda.OutOfMemoryError:
            kept.most = len(kept.by_key)
            return False
        return True

    def _recording(self, owner: nn.Module, inputs: tuple[Tensor, ...]) -> Function:
        """Capture the function; all graphs share memory, because only one runs at a time."""
        if self._kept.memory is None:
            self._kept.memory = torch.cuda.graph_pool_handle()
        names = [f"owner.{name}" for name, _ in owner.named_parameters()]
        weighed = _Weighed(owner, self._function)

        def function(*tensors: Tensor) -> Any:
            weights = dict(zip(names, tensors, strict=False))
            return functional_call(weighed, weights, tensors[len(names) :])

        weights = [one.detach() for one in owner.parameters()]  # views of the originals, so that nothing is copied
        like = [*weights, *(one.detach().clone() for one in inputs)]
        for one, original in zip(like, (*owner.parameters(), *inputs), strict=True):
            one.requires_grad_(original.requires_grad)
        played: Any = torch.cuda.make_graphed_callables(
            function, tuple(like), num_warmup_iters=_WARM_UP, allow_unused_input=True, pool=self._kept.memory
        )
        return played  # type: ignore[no-any-return]


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """Capture operations on a device, and restore its stream and random state afterwards."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if cuda else []), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch warms up on its own stream
        if not cuda:
            yield
            return
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
            yield


class _Once(torch.autograd.Function):
    """Passes tensors through, and copies their gradients, which the graph would otherwise overwrite.

    Only the latest call of a captured function supports backward, and only once.
    """

    @staticmethod
    def forward(ctx: Any, recorded: CapturedFunction, turn: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.recorded, ctx.turn = recorded, turn
        return tuple(one.detach() for one in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.turn != ctx.recorded.turn:
            raise SightlineError(
                "backward() was called twice on a captured loss, or after it was computed again",
                "Call backward() once for every loss, and before the next one is computed.",
            )
        ctx.recorded.turn += 1
        return None, None, *(one if one is None else one.clone() for one in gradients)


class _Weighed(nn.Module):
    """Wraps a function in a module that holds the weights it depends on, so that they can be replaced."""

    def __init__(self, owner: nn.Module, function: Function) -> None:
        super().__init__()
        self.owner, self.function = owner, function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(self.owner, *inputs)
