"""Distributed training: the rows of each process, and sums over all processes.

Started by torchrun, every process draws the same batch, encodes its share of the texts and images, and gathers the
encodings of the others. A single process is a world of size one, without overhead.
"""

import atexit
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_PATIENCE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class World:
    """The number of processes that train together, and the rank of this one."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """True in the one process that writes files and prints."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Return the rows of `count` that belong to this process; processes differ by at most one row."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, rows: Tensor, count: int) -> Tensor:
        """Gather all `count` rows from the shares of all processes."""
        if self.size == 1:
            return rows
        kind = torch.uint8 if rows.dtype == torch.bool else rows.dtype
        everything = torch.zeros(count, *rows.shape[1:], dtype=kind, device=rows.device)
        everything[self.share(count)] = rows.to(kind)
        return self.add(everything).to(rows.dtype)

    def add(self, tensor: Tensor) -> Tensor:
        """Sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flags: Sequence[bool], device: torch.device) -> list[bool]:
        """For each flag, whether it is true in any process."""
        if self.size == 1:
            return list(flags)
        return [
            bool(count) for count in self.add(torch.tensor([float(flag) for flag in flags], device=device)).tolist()
        ]

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum the gradients of all processes, in one message.

        A parameter that has no gradient in any process keeps none: AdamW then skips it, whereas a gradient of zeros
        would decay it and its moments.
        """
        if self.size == 1:
            return
        trained = [p for p in parameters if p.requires_grad]
        there = torch.tensor([p.grad is not None for p in trained], dtype=torch.int32, device=trained[0].device)
        shared = [p for p, count in zip(trained, self.add(there).tolist(), strict=True) if count]
        if not shared:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in shared]
        flat = self.add(torch.cat([gradient.flatten() for gradient in gradients]))
        for parameter, part in zip(shared, torch.split(flat, [p.numel() for p in shared]), strict=True):
            parameter.grad = part.view_as(parameter)

    def tell(self, value: Any) -> Any:
        """Broadcast a value from the leading process; the others wait for it as long as it takes."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=_patient())
        return box[0]

    def wait(self) -> None:
        """Wait for all processes, as long as it takes."""
        if self.size > 1:
            dist.barrier(_patient())


ALONE = World()
"""A single process."""


@cache
def _patient() -> Any:
    """Return the group of all processes, for waiting while one of them validates or writes files.

    The default group times out after minutes. This one does not; if a process ends, torchrun ends the others.
    """
    return dist.new_group(backend="gloo", timeout=_PATIENCE)


def join(timeout: timedelta | None = None) -> World:
    """Join the other processes if torchrun started this one.

    timeout: how long a step may wait for another process; by default torch's own limit.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timeout)
        atexit.register(dist.destroy_process_group)
        _patient()  # all processes must create it at the same time
    return World(dist.get_rank(), dist.get_world_size())


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; to a GPU through pinned memory, so that the CPU does not wait."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def device() -> torch.device:
    """Return the device of this process: its own GPU, if there is one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(found)
    return found
