"""Attention and feed-forward networks as in paper 2: each with a residual connection, followed by a norm."""

import torch
from torch import Tensor, nn

from sightline.errors import ModelError


class Attending(nn.Module):
    """Multi-head attention of items to others, with a bias, a residual connection and a norm.

        norm(X + Att(X, Y)),    Att = softmax(QKᵀ / √d + bias) V    (paper 2, equations 1 and 12)

    Q comes from X, K and V from Y, d is the width of a head, and the bias is the same for every head. If Y is X,
    this is self-attention.
    """

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise ModelError(
                f"{dim} dimensions cannot be split into {heads} heads", f"Use a number of heads that divides {dim}."
            )
        if not 0 <= dropout < 1:
            raise ModelError(f"dropout cannot be {dropout}", "Use a fraction of at least 0 and below 1.")
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(self, items: Tensor, others: Tensor, bias: Tensor) -> Tensor:
        """Update items [..., n, dim] by others [..., m, dim]; bias: [..., n or 1, m]."""
        query = self._split(self.query(items))
        key, value = self._split(self.key(others)), self._split(self.value(others))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = self.dropout((scores + bias.unsqueeze(-3)).softmax(-1))
        found = (weights.to(value.dtype) @ value).transpose(-2, -3).flatten(-2)
        return self.norm(items + self.dropout(self.out(found)))  # type: ignore[no-any-return]

    def _split(self, values: Tensor) -> Tensor:
        """Split [..., n, dim] into heads: [..., heads, n, dim / heads]."""
        return values.reshape(*values.shape[:-1], self.heads, -1).transpose(-2, -3)


class FeedForward(nn.Module):
    """norm(X + MLP(X)), with a hidden layer of twice the width."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(self, items: Tensor) -> Tensor:
        """Update each item of [..., dim] independently."""
        middle = self.dropout(torch.relu(self.inner(items)))
        return self.norm(items + self.dropout(self.outer(middle)))  # type: ignore[no-any-return]


def hide(values: Tensor, shown: Tensor) -> Tensor:
    """Set values to the lowest number where `shown` is false, so that softmax and max ignore them."""
    return values.masked_fill(~shown, torch.finfo(values.dtype).min)
