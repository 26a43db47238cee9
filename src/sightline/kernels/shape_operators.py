"""Operators that compute shapes, or reshape values."""

import numpy as np
import torch
from torch import Tensor

from sightline.kernels.operators import Attributes, operator, refuse


@operator("Shape")
def shape(attributes: Attributes, values: Tensor) -> Tensor:
    """Return the sizes of the axes from `start` to `end` (all by default), as a tensor on the CPU."""
    return torch.tensor(values.shape[attributes.get("start", 0) : attributes.get("end")], dtype=torch.int64)


@operator("Range", host=(-1,))
def range_(attributes: Attributes, start: Tensor, end: Tensor, step: Tensor) -> Tensor:
    """Return a range of numbers."""
    return torch.arange(start.item(), end.item(), step.item(), dtype=start.dtype)


@operator("Reshape", host=(1,))
def reshape(attributes: Attributes, values: Tensor, wanted: Tensor) -> Tensor:
    """Reshape; 0 keeps an axis, unless `allowzero` is set."""
    sides = wanted.tolist()
    if not attributes.get("allowzero"):
        sides = [side or values.shape[place] for place, side in enumerate(sides)]
    return values.reshape(sides)


@operator("Expand", host=(1,))
def expand(attributes: Attributes, values: Tensor, wanted: Tensor) -> Tensor:
    """Repeat values along axes of length one."""
    return values.expand(np.broadcast_shapes(tuple(values.shape), tuple(wanted.tolist())))


@operator("Transpose")
def transpose(attributes: Attributes, values: Tensor) -> Tensor:
    """Permute the axes."""
    return values.permute(attributes.get("perm", tuple(reversed(range(values.ndim)))))


@operator("Concat")
def concat(attributes: Attributes, *parts: Tensor) -> Tensor:
    """Concatenate along an axis."""
    return torch.cat(parts, attributes["axis"])


@operator("Split", host=(1,))
def split(attributes: Attributes, values: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    """Split along an axis: into given sizes, or into nearly equal parts."""
    axis = attributes.get("axis", 0)
    each = -(-values.shape[axis] // attributes["num_outputs"]) if sizes is None else sizes.tolist()
    return torch.split(values, each, axis)


@operator("Slice", host=(1, 2, 3, 4))
def slice_(
    attributes: Attributes,
    values: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Slice along axes."""
    if steps is not None and bool((steps < 1).any()):
        raise refuse("Slice", "has a negative step")
    chosen = [slice(None)] * values.ndim
    along = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    for axis, start, end, stride in zip(along, starts.tolist(), ends.tolist(), strides, strict=True):
        chosen[axis] = slice(start, end, stride)
    return values[tuple(chosen)]


@operator("Unsqueeze", host=(1,))
def unsqueeze(attributes: Attributes, values: Tensor, axes: Tensor) -> Tensor:
    """Insert axes of length one, numbered as in the result."""
    places = axes.flatten().tolist()
    for place in sorted(place % (values.ndim + len(places)) for place in places):
        values = values.unsqueeze(place)
    return values


@operator("Squeeze", host=(1,))
def squeeze(attributes: Attributes, values: Tensor, axes: Tensor | None = None) -> Tensor:
    """Remove axes of length one: the given ones, or all."""
    return values.squeeze() if axes is None else values.squeeze(tuple(axes.flatten().tolist()))
