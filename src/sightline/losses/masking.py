"""Common parts of the masked losses: choosing hidden parts, and the prediction head."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sightline.errors import ModelError
from sightline.losses.base import Inputs, Pairs


def check_share(loss: str, share: float) -> float:
    """Reject a fraction of 0 or above 1."""
    if not 0 < share <= 1:
        raise ModelError(f"{loss} share {share}", "Give the share of an item that is hidden, above 0 and up to 1.")
    return share


def own_inputs(loss: str, pairs: Pairs) -> Inputs:
    """The inputs of a batch; an error if it has none."""
    if pairs.inputs is None:
        raise ModelError(f"{loss} hides parts of texts and images and needs them", "Give Pairs inputs.")
    return pairs.inputs


@torch.no_grad()
def hide(allowed: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Choose what to hide, [items, n]: each existing part with probability `share`, and at least one of each item.

    allowed: [items, n], true where a part may be hidden; numbers: [items, n], uniform from 0 to 1.

    >>> hide(torch.tensor([[True, True, False]]), torch.tensor([[0.5, 0.2, 0.1]]), share=0.15)
    tensor([[False,  True, False]])
    """
    least = numbers.masked_fill(~allowed, torch.inf).amin(1, keepdim=True)
    return allowed & ((numbers < share) | (numbers == least))


def between_ends(mask: Tensor) -> Tensor:
    """The words of tokens [texts, n]: all real ones but the first and the last, which a tokenizer adds.

    >>> between_ends(torch.tensor([[True, True, True, True, False], [True, True, False, False, False]])).int().tolist()
    [[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    """
    counted = mask.long().cumsum(1)
    return mask & (counted > 1) & (counted < counted[:, -1:])


def mean_of_items(losses: Tensor, hidden: Tensor, counts: Tensor, items: int) -> Tensor:
    """Compute this process's contribution: the mean over an item's hidden parts, then over all `items` of the batch.

    losses: [hidden parts], in the order of hidden [own items, n]; counts: [own items], false for ignored items.
    """
    weights = counts / hidden.sum(1).clamp(min=1)
    return (losses * weights[hidden.nonzero()[:, 0]]).sum() / items


def in_chunks(share: Callable[[Tensor], Tensor], rows: int, chunk: int, device: torch.device) -> Tensor:
    """Sum `share` over rows 0 to `rows`, `chunk` at a time, recomputed in the backward pass; 0 takes all at once."""
    numbers = torch.arange(rows, device=device)
    if not 0 < chunk < rows:
        return share(numbers)
    parts = [checkpoint(share, some, use_reentrant=False) for some in torch.split(numbers, chunk)]
    return torch.stack(parts).sum()


class PredictionHead(nn.Module):
    """The layers before BERT's word predictions: a linear layer, GELU and a norm."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, out)
        self.norm = nn.LayerNorm(out)

    def forward(self, found: Tensor) -> Tensor:
        """Map [n, width] to [n, out]."""
        return self.norm(F.gelu(self.dense(found)))  # type: ignore[no-any-return]
