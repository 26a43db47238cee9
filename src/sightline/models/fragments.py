"""The fragments of an item: appending codes, and pooling by clustering.

Codes (paper 3, section 4.1) are learned vectors that enter an encoder together with the words or patches of an item,
and come out as additional fragments. They are always an item's last fragments.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.models.retriever import Regions


def new_codes(count: int, dim: int, spread: float) -> nn.Parameter | None:
    """Make random codes [count, dim] with the standard deviation `spread` of the encoder's other inputs; None for 0."""
    return nn.Parameter(torch.randn(count, dim) * spread) if count else None


def with_codes(values: Tensor, codes: Tensor) -> Tensor:
    """Append codes [count, dim] to every item of values [batch, n, dim]."""
    return torch.cat([values, codes.to(values.dtype).expand(values.shape[0], -1, -1)], 1)


def mask_with_codes(mask: Tensor, count: int) -> Tensor:
    """Append `count` true positions to mask [batch, n]."""
    return torch.cat([mask, mask.new_ones(mask.shape[0], count)], 1) if count else mask


def mask_without_codes(mask: Tensor, count: int) -> Tensor:
    """Set the last `count` true positions of each row of mask [batch, n] to false; they are the codes.

    >>> mask_without_codes(torch.tensor([[True, False, True, True], [True, True, True, False]]), 2).int().tolist()
    [[1, 0, 0, 0], [1, 0, 0, 0]]
    """
    if not count:
        return mask
    counted = mask.long().cumsum(1)
    return mask & (counted <= counted[:, -1:] - count)


def clusters(values: Tensor, count: int, mask: Tensor | None = None, rounds: int = 4) -> tuple[Tensor, Tensor]:
    """Assign values to `count` clusters by k-means: averaging weights `shares` [batch, count, n], mask [batch, count].

    values: [batch, n, dim]; mask: [batch, n], true for real values; None if all are real. `shares @ values` are the
    means of the clusters, with gradients to their members; membership is decided without gradients.

    Spherical (by cosine) and deterministic: centres start at values evenly spaced among the real ones and move in
    `rounds` of Lloyd's algorithm. A cluster that loses all members is reset to its first value. With fewer real values
    than clusters, each value is a cluster, and the mask hides the rest. Written as matrix products, for export to ONNX.
    """
    with torch.no_grad():
        points = F.normalize(values.detach().float(), dim=-1)
        seeds, real = _seeds(points, count, mask)
        centres = seeds @ points
        for _ in range(rounds):
            members = _members(points, centres, real, mask)
            centres = F.normalize(torch.where(members.any(2, keepdim=True), members @ points, seeds @ points), dim=-1)
        members = _members(points, centres, real, mask)
        shares = torch.where(members.any(2, keepdim=True), members, seeds)
        return (shares / shares.sum(2, keepdim=True)).to(values.dtype), real


def pooled_regions(regions: Regions, count: int) -> tuple[Tensor, Tensor]:
    """Return the features and boxes concatenated, [batch, n, width], with their mask [batch, n].

    count: pool to the means of this many clusters of regions with similar features; 0 does not pool.
    """
    given = torch.cat([regions.features, regions.boxes], -1)
    if not count:
        return given, regions.mask
    shares, mask = clusters(regions.features, count, regions.mask)
    return shares @ given, mask


def _seeds(points: Tensor, count: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Choose evenly spaced real points, one-hot [batch, count, n], and return which of them are not repeated."""
    batch, n, _ = points.shape
    steps = torch.arange(count, device=points.device)
    if mask is None:
        places = (steps * max(n, count) // count).clamp(max=n - 1)
        chosen = F.one_hot(places, n).to(points.dtype).expand(batch, -1, -1)
        return chosen, (steps < n).expand(batch, -1)
    present = mask.sum(1, keepdim=True)
    ranks = torch.minimum(steps * present.clamp(min=count) // count, (present - 1).clamp(min=0))
    places = torch.arange(n, device=points.device)
    order = (mask.long() * n - places).argsort(dim=1, descending=True)  # the real ones first, in order
    return (order.gather(1, ranks)[:, :, None] == places).to(points.dtype), steps < present


def _members(points: Tensor, centres: Tensor, real: Tensor, mask: Tensor | None) -> Tensor:
    """Assign each point to the nearest centre, or the first in a tie: one-hot [batch, count, n]."""
    cosines = (centres @ points.transpose(1, 2)).masked_fill(~real[:, :, None], -2.0)
    nearest = F.one_hot(cosines.argmax(1), centres.shape[1]).to(points.dtype).transpose(1, 2)
    return nearest if mask is None else nearest * mask[:, None, :]
