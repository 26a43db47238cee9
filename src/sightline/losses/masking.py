"""Common parts of the masked losses: choosing hidden parts, and the prediction head."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sightline.errors import ModelError
from sightline.losses.base import Inputs, Pairs
from sightline.models.retriever import EncodedTensors


def check_share(loss: str, share: float) -> float:
    """Reject a fraction that is not above 0 and at most 1."""
    if not 0 < share <= 1:
        raise ModelError(
            f"{loss}.share cannot be {share}", "Use the fraction of an item to hide, above 0 and at most 1."
        )
    return share


def own_inputs(loss: str, pairs: Pairs) -> Inputs:
    """Return the inputs of a batch; raises an error if it has none."""
    if pairs.inputs is None:
        raise ModelError(
            f"{loss} masks parts of the encoder inputs, but the batch does not include them", "Set `Pairs.inputs`."
        )
    return pairs.inputs


@torch.no_grad()
def hide(allowed: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Choose what to hide, [items, n]: each allowed part with probability `share`, and at least one of each item.

    allowed: [items, n], true where a part may be hidden; numbers: [items, n], uniform from 0 to 1.

    >>> hide(torch.tensor([[True, True, False]]), torch.tensor([[0.5, 0.2, 0.1]]), share=0.15)
    tensor([[False,  True, False]])
    """
    least = numbers.masked_fill(~allowed, torch.inf).amin(1, keepdim=True)
    return allowed & ((numbers < share) | (numbers == least))


class Masked(NamedTuple):
    """Masks of words, [texts, n] each: the words to predict, and which of these are blanked or swapped."""

    predicted: Tensor
    blank: Tensor
    swapped: Tensor


@torch.no_grad()
def mask_words(there: Tensor, numbers: Tensor, share: float) -> Masked:
    """Choose words to predict, each with probability `share`; 80 % of these are blanked, 10 % swapped, 10 % kept.

    If no word of a text is chosen, the first word is blanked. there: [texts, n], true for words; numbers: [texts, n],
    uniform from 0 to 1. BERT and the code of paper 4 do the same.

    >>> mask_words(torch.tensor([[False, True, True]]), torch.tensor([[0.0, 0.9, 0.2]]), share=0.15).blank
    tensor([[False,  True, False]])
    """
    chosen = there & (numbers < share)
    first = there & (there.cumsum(1) == 1) & ~chosen.any(1, keepdim=True)
    part = numbers / share
    return Masked(chosen | first, first | (chosen & (part < 0.8)), chosen & (part >= 0.8) & (part < 0.9))


def others_of(side: EncodedTensors, positive: Tensor) -> Tensor:
    """Return the [CLS] [items, width] of each item's partner: its first positive in `positive` [items, others]."""
    if side.pooled is None:
        raise ModelError("this model has no [CLS] vector to add", "Set fused = false.")
    return side.pooled.index_select(0, positive.int().argmax(1))


def between_ends(mask: Tensor) -> Tensor:
    """Return a mask of the words among tokens [texts, n]: all but padding and the first and last tokens.

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
    """Sum `share` over all rows, `chunk` at a time (0: all at once), recomputing it in the backward pass."""
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
