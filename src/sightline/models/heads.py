"""The small layers on top of encoders: pooling over a mask, unit-length projections, the matching score."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of values [..., n, dim] over the true positions of mask [..., n]."""
    weights = mask.to(values.dtype).unsqueeze(-1)
    return (values * weights).sum(-2) / weights.sum(-2).clamp(min=1)


def last_real(values: Tensor, mask: Tensor) -> Tensor:
    """Return the value [batch, dim] at the last true position of mask [batch, n], where a text ends in CLIP."""
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, places, 0).amax(1)
    return values.gather(1, last[:, None, None].expand(-1, 1, values.shape[2])).squeeze(1)


class UnitProjection(nn.Module):
    """A linear map, normalised to unit length unless `unit` is false.

    Initialised from `weight` [dim, hidden] if a checkpoint has one of that shape.
    """

    def __init__(self, hidden: int, dim: int, weight: Tensor | None = None, unit: bool = True) -> None:
        super().__init__()
        self.unit = unit
        self.linear = nn.Linear(hidden, dim, bias=False)
        if weight is not None and weight.shape == self.linear.weight.shape:
            with torch.no_grad():
                self.linear.weight.copy_(weight)

    def forward(self, values: Tensor) -> Tensor:
        """Project [..., hidden] to [..., dim]."""
        projected = self.linear(values)
        return F.normalize(projected, dim=-1) if self.unit else projected


class ImageStates(nn.Module):
    """Maps image fragments to the space of word vectors: an affine map, normalised (paper 1, section 3).

    The normalisation gives fragments the scale that the transformer expects of its inputs, set by `spread`: the
    root mean square of the word vectors it was trained on.
    """

    def __init__(self, hidden: int, dim: int, spread: float) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)
        nn.init.constant_(self.norm.weight, spread)

    def forward(self, fragments: Tensor) -> Tensor:
        """Map [batch, n, hidden] to [batch, n, dim]."""
        return self.norm(self.linear(fragments))  # type: ignore[no-any-return]


class MatchHead(nn.Module):
    """The score of a pair from the contextual vector of its first token, [CLS] (paper 1, section 3.1)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, read: Tensor) -> Tensor:
        """Return the logits [batch], float32 even under autocast, from contextual vectors [batch, n, hidden]."""
        first = read[:, 0]
        if not torch.is_autocast_enabled(first.device.type):
            return self._scored(first)
        with torch.autocast(first.device.type, enabled=False):  # bfloat16 has 256 steps: candidates would tie
            return self._scored(first.float())

    def _scored(self, first: Tensor) -> Tensor:
        return self.score(torch.tanh(self.dense(first))).squeeze(-1)  # type: ignore[no-any-return]
