"""The number format of losses: at least float32, whatever the encoders compute in."""

import torch
from torch import Tensor


def full(values: Tensor) -> Tensor:
    """Convert values to float32, unless they are float64.

    >>> full(torch.ones(1, dtype=torch.bfloat16)).dtype, full(torch.ones(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return values.to(torch.promote_types(values.dtype, torch.float32))
