"""The recurrent operator of a bundle's graphs."""

import torch
from torch import Tensor

from sightline.kernels.operators import Attributes, operator, refuse


@operator("GRU")
def gru(
    attributes: Attributes,
    values: Tensor,
    weights: Tensor,
    recurrent: Tensor,
    biases: Tensor,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a bidirectional GRU over values [n, batch, dim]; returns [n, 2, batch, hidden] and the last states.

    weights: [2, 3 x hidden, dim]; recurrent: [2, 3 x hidden, hidden]; biases: [2, 6 x hidden].
    """
    if attributes.get("direction") != b"bidirectional" or not attributes.get("linear_before_reset"):
        raise refuse("GRU", "is a variant that torch does not support")
    places = torch.arange(len(values), device=values.device)[:, None]
    ends = (torch.full_like(values[0, :, 0], len(values)) if lengths is None else lengths).to(torch.int64)
    is_real = places < ends
    backwards = torch.where(is_real, ends - 1 - places, places)
    found, last = [], []
    for way, order in enumerate((None, backwards)):
        read = values if order is None else _reordered(values, order)
        parameters = _parameters(weights[way], recurrent[way], biases[way])
        start = values.new_zeros(1, values.shape[1], recurrent.shape[-1], dtype=torch.float32)
        states, _ = torch.gru(read.float(), start, parameters, True, 1, 0.0, False, False, False)
        last.append(_reordered(states, ends[None] - 1)[0])
        states = states if order is None else _reordered(states, order)
        found.append(torch.where(is_real[..., None], states, 0))
    return torch.stack(found, 1), torch.stack(last)


def _reordered(values: Tensor, order: Tensor) -> Tensor:
    """Reorder each item of a batch [n, batch, dim] by its own order [m, batch]."""
    return values.gather(0, order[..., None].expand(-1, -1, values.shape[-1]))


def _parameters(weights: Tensor, recurrent: Tensor, biases: Tensor) -> list[Tensor]:
    """Reorder the gates for torch, reset before update; input and recurrent weights have separate biases."""

    def swapped(part: Tensor) -> Tensor:
        update, reset, new = part.chunk(3)
        return torch.cat([reset, update, new])

    return [swapped(part).contiguous() for part in (weights, recurrent, *biases.chunk(2))]
