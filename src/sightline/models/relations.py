"""Relations among the fragments of one item, and an embedding computed from them (paper 2, section 3.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.models.attention import Attending, FeedForward, hide
from sightline.models.heads import masked_mean


@dataclass(frozen=True, slots=True)
class RelationConfig:
    """How embeddings are computed from fragments by self-attention.

    image, text: whether that side's fragments attend to each other; otherwise they are pooled directly.
    beta: the weight of the maximum over the initial fragments in the embedding; the mean of the enhanced fragments has
    weight 1 - beta.
    heads, dropout: those of the self-attention layer.
    drop: the probability of dropping each fragment of an image in training, so that the model does not rely on a
    few of them.
    """

    image: bool = True
    text: bool = True
    beta: float = 0.8
    heads: int = 16
    dropout: float = 0.1
    drop: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise ModelError(f"relations.beta cannot be {self.beta}", "Use a fraction from 0 to 1.")
        if not 0 <= self.drop < 1:
            raise ModelError(f"relations.drop cannot be {self.drop}", "Use a probability of at least 0 and below 1.")


class RelationPooling(nn.Module):
    """Equations 2 and 3: β · max over the initial fragments + (1 - β) · mean over the enhanced, at unit length.

    Fragments are enhanced by one layer of self-attention (equation 1) and a feed-forward network.
    """

    def __init__(self, dim: int, relates: bool, config: RelationConfig) -> None:
        super().__init__()
        self.beta = config.beta
        self.attend = Attending(dim, config.heads, config.dropout) if relates else None
        self.feed_forward = FeedForward(dim, config.dropout) if relates else None

    def forward(self, fragments: Tensor, mask: Tensor) -> Tensor:
        """Pool fragments [batch, n, dim] with mask [batch, n], true for real ones, to [batch, dim]."""
        enhanced = fragments
        if self.attend is not None and self.feed_forward is not None:
            bias = hide(torch.zeros_like(mask, dtype=torch.float32), mask)[:, None]
            enhanced = self.feed_forward(self.attend(fragments, fragments, bias))
        greatest = hide(fragments, mask[:, :, None]).amax(1)
        return F.normalize(self.beta * greatest + (1 - self.beta) * masked_mean(enhanced, mask), dim=-1)


def dropped(mask: Tensor, share: float) -> Tensor:
    """Drop each true position of mask [batch, n] with probability `share`, but never all of a row."""
    luck = torch.rand(mask.shape, device=mask.device).masked_fill(~mask, -1.0)
    best = luck >= luck.amax(1, keepdim=True)
    return mask & ((luck >= share) | best)
