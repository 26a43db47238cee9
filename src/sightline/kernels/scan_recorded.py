"""A scan captured as a CUDA graph and replayed with one launch."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.device import CAPTURING


class CapturedScan:
    """Steps for queries of one shape as a CUDA graph, including copies from and to CPU memory.

    steps: maps queries [batch, dim] on the device to results [batch, n] in int32, always using the same tensors.
    shape: the shape of the queries. Not thread-safe.
    """

    def __init__(self, steps: Callable[[Tensor], Tensor], shape: tuple[int, int], device: torch.device) -> None:
        self._queries = torch.zeros(shape, pin_memory=True)
        answer = steps(self._queries.to(device))  # compiles kernels, which cannot be captured
        self._answer = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True)
        self._graph = torch.cuda.CUDAGraph()
        own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with CAPTURING, torch.cuda.graph(self._graph, stream=own, capture_error_mode="thread_local"):
            self._answer.copy_(steps(self._queries.to(device, non_blocking=True)), non_blocking=True)

    def __call__(self, queries: Tensor) -> npt.NDArray[np.int32]:
        """Return the results of queries [n, dim], at most one batch."""
        self._queries[: len(queries)].copy_(queries)
        self._graph.replay()
        torch.cuda.current_stream().synchronize()
        return self._answer[: len(queries)].numpy().copy()
