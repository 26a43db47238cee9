"""Computations of a GPU that are recorded once and then played again, forwards and backwards.

A loss of hundreds of small operations keeps the processor busy: each has to be launched, and that takes longer than to
compute it. A recording (a CUDA graph) launches all of them at once.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

Function = Callable[..., tuple[Tensor, ...]]
MOST = 8
"""How many recordings are kept: one for each combination of shapes. What comes after them is computed as ever."""
_WARM_UP = 3


class Recorded:
    """A function of tensors and of a module's weights, recorded for each combination of shapes that it meets.

    The function must not make the processor wait for the GPU, nor decide anything by what tensors hold, and may be
    random only by the GPU's default generator: played again, it takes its luck from there, as it would unrecorded.
    Gradients are good until the function is called again.
    """

    def __init__(self, owner: nn.Module, function: Function) -> None:
        self._owner, self._function = owner, function
        self._recordings: dict[tuple[Any, ...], Function] = {}
        self._memory: Any = None

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Give what the function gives, from a recording where there is one or room for one."""
        key = self._owner.training, *((one.shape, one.dtype, one.requires_grad) for one in inputs)
        if key not in self._recordings:
            if len(self._recordings) == MOST:
                return self._function(*inputs)
            self._recordings[key] = self._record(inputs)
        return tuple(one.clone() for one in self._recordings[key](*self._owner.parameters(), *inputs))

    def _record(self, inputs: tuple[Tensor, ...]) -> Function:
        """Record the function for inputs like these; all recordings share memory, because they take turns."""
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        names = [f"owner.{name}" for name, _ in self._owner.named_parameters()]
        weighed = _Weighed(self._owner, self._function)

        def function(*tensors: Tensor) -> Any:
            weights = dict(zip(names, tensors, strict=False))
            return functional_call(weighed, weights, tensors[len(names) :])

        weights = [one.detach() for one in self._owner.parameters()]  # where they are, so that no copy is ever made
        like = [*weights, *(one.detach().clone() for one in inputs)]
        for one, original in zip(like, (*self._owner.parameters(), *inputs), strict=True):
            one.requires_grad_(original.requires_grad)
        with torch.random.fork_rng([one.device for one in inputs[:1] if one.is_cuda]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch tries out on one stream
            played: Any = torch.cuda.make_graphed_callables(
                function, tuple(like), num_warmup_iters=_WARM_UP, allow_unused_input=True, pool=self._memory
            )
        return played  # type: ignore[no-any-return]


class _Weighed(nn.Module):
    """A function with the weights that it depends on, in whose place others can be put."""

    def __init__(self, owner: nn.Module, function: Function) -> None:
        super().__init__()
        self.owner, self.function = owner, function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(*inputs)
