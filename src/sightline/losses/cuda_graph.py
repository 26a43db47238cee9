"""Computations of a GPU that are recorded once and then played again, forwards and backwards.

A loss of hundreds of small operations keeps the processor busy: each has to be launched, and that takes longer than to
compute it. A recording (a CUDA graph) launches all of them at once.
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
"""How many recordings are kept: one for each combination of shapes. What comes after them is computed as ever."""
SIGHTS = 3
"""How often a combination is met before it is recorded: that takes as long as many steps, and keeps memory."""
_WARM_UP = 3


@dataclass(slots=True)
class _Recordings:
    """Recordings by what they are of; places: of the weights that they belong to; most: how many there may be."""

    places: tuple[Any, ...]
    by_key: dict[Any, Function] = field(default_factory=dict)
    sights: Counter[Any] = field(default_factory=Counter)
    memory: Any = None
    most: int = field(default_factory=lambda: MOST)


class Recorded:
    """A function of a module and of tensors, recorded for each combination of shapes that it meets several times.

    The function must not make the processor wait for the GPU, nor decide anything by what tensors hold, and may be
    random only by the GPU's default generator: played again, it takes its luck from there, as it would unrecorded.
    The module's weights are those of now, its other settings those of when it was recorded.

    Gradients go back once, and before the function is called again: a recording has room for one batch.
    A copy has no recordings: they belong to the weights of one module.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._kept = _Recordings(())
        self.turn = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function,)

    def __call__(self, owner: nn.Module, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Give what the function gives, from a recording where there is one or room for one."""
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
        """Record the function for inputs like these, if it is time and there is room; gives whether that was done."""
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
        """Record the function; all recordings share memory, because they take turns."""
        if self._kept.memory is None:
            self._kept.memory = torch.cuda.graph_pool_handle()
        names = [f"owner.{name}" for name, _ in owner.named_parameters()]
        weighed = _Weighed(owner, self._function)

        def function(*tensors: Tensor) -> Any:
            weights = dict(zip(names, tensors, strict=False))
            return functional_call(weighed, weights, tensors[len(names) :])

        weights = [one.detach() for one in owner.parameters()]  # where they are, so that no copy is ever made
        like = [*weights, *(one.detach().clone() for one in inputs)]
        for one, original in zip(like, (*owner.parameters(), *inputs), strict=True):
            one.requires_grad_(original.requires_grad)
        played: Any = torch.cuda.make_graphed_callables(
            function, tuple(like), num_warmup_iters=_WARM_UP, allow_unused_input=True, pool=self._kept.memory
        )
        return played  # type: ignore[no-any-return]


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """Record on a device, and leave its stream and its luck as they were, whatever happens."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if cuda else []), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch tries out on one of its own
        if not cuda:
            yield
            return
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
            yield


class _Once(torch.autograd.Function):
    """Tensors as they are, and copies of their gradients, which the recording would write over.

    Only the latest call of a recorded function can still be gone back through, and only once.
    """

    @staticmethod
    def forward(ctx: Any, recorded: Recorded, turn: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.recorded, ctx.turn = recorded, turn
        return tuple(one.detach() for one in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.turn != ctx.recorded.turn:
            raise SightlineError(
                "the gradients of a recorded loss were asked for twice, or after it was computed again",
                "Call backward() once for every loss, and before the next one is computed.",
            )
        ctx.recorded.turn += 1
        return None, None, *(one if one is None else one.clone() for one in gradients)


class _Weighed(nn.Module):
    """A function with the weights that it depends on, in whose place others can be put."""

    def __init__(self, owner: nn.Module, function: Function) -> None:
        super().__init__()
        self.owner, self.function = owner, function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(self.owner, *inputs)
