"""The number format of losses: at least float32, whatever the encoders compute in."""

import torch
from torch import Tensor


def full(values: Tensor) -> Tensor:
    """Values in float32, or in float64 if they are.

    >>> full(torch.ones(1, dtype=torch.bfloat16)).dtype, full(torch.ones(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return values.to(torch.promote_types(values.dtype, torch.float32))
