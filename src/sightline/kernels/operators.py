"""The operators of a bundle's graphs in torch: one function per operator, by its ONNX name.

A function takes the operator's attributes and its inputs; an omitted input is None. Inputs that it reads on the host,
such as a shape, are declared at registration. Normalisations, reductions and softmax work in float32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import UnknownOperatorError

Attributes = Mapping[str, Any]
Outputs = Tensor | tuple[Tensor, ...]
ON_PROCESSORS = "Run it with ONNX Runtime on the CPU: SIGHTLINE_DEVICE=cpu."
_ALIGNED = 8  # elements that rows of a mask are aligned to
_TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool}  # as ONNX numbers them


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator's function, and which of its inputs it reads on the host; -1 stands for all of them."""

    function: Callable[..., Outputs]
    host: tuple[int, ...] = ()

    def reads_on_host(self, place: int) -> bool:
        """Return whether the input at this index determines shapes, and must be known before the graph runs."""
        return place in self.host or -1 in self.host


OPERATORS: dict[str, Operator] = {}


def operator(name: str, *, host: tuple[int, ...] = ()) -> Callable[[Callable[..., Outputs]], Callable[..., Outputs]]:
    """Register the function of an operator."""

    def register(function: Callable[..., Outputs]) -> Callable[..., Outputs]:
        OPERATORS[name] = Operator(function, host)
        return function

    return register


def refuse(name: str, why: str) -> UnknownOperatorError:
    """Return the error for an unsupported operator, or an unsupported use of one."""
    return UnknownOperatorError(f"the operator {name} {why}", ON_PROCESSORS)


_PLAIN: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Max": torch.maximum,
    "And": torch.logical_and,
    "Not": torch.logical_not,
    "Equal": torch.eq,
    "GreaterOrEqual": torch.ge,
    "LessOrEqual": torch.le,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}


def _without_attributes(function: Callable[..., Any]) -> Operator:
    return Operator(lambda attributes, *inputs: function(*inputs))


OPERATORS |= {name: _without_attributes(function) for name, function in _PLAIN.items()}


@operator("Linear")
def linear(attributes: Attributes, values: Tensor) -> Outputs:
    """Multiply by a constant matrix in its dtype (see `products`), or by several with `sizes` (see `graph_fusion`)."""
    weight: Tensor = attributes["weight"]
    made = F.linear(values.to(weight.dtype), weight, attributes["bias"])
    return torch.split(made, attributes["sizes"], -1) if "sizes" in attributes else made


@operator("MatMul")
def matmul(attributes: Attributes, one: Tensor, other: Tensor) -> Tensor:
    """Multiply two computed values in float32: few such products are large, and some compute distances."""
    return one.float() @ other.float()


@operator("Attention")
def attention(attributes: Attributes, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute attention over [batch, heads, n, width] or [batch, n, heads * width], with a boolean or additive mask."""
    if query.ndim not in (3, 4) or attributes.get("softcap") or attributes.get("is_causal"):
        raise refuse("Attention", "is used in an unsupported way")
    is_joined = query.ndim == 3
    if is_joined:
        query = _heads(query, attributes["q_num_heads"])
        key, value = (_heads(one, attributes["kv_num_heads"]) for one in (key, value))
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(query.dtype)
    read = F.scaled_dot_product_attention(query, key, value, mask, scale=attributes.get("scale"))
    return read.transpose(1, 2).flatten(2) if is_joined else read


def _heads(values: Tensor, count: int) -> Tensor:
    """Split [batch, n, heads * width] into [batch, heads, n, width]."""
    batch, n, width = values.shape
    return values.reshape(batch, n, count, width // count).transpose(1, 2)


@operator("Hiding")
def hiding(attributes: Attributes, mask: Tensor, query: Tensor) -> Tensor:
    """Convert a boolean mask to an additive one in the queries' dtype; leave other masks unchanged.

    Rows are aligned for attention on a GPU, which would otherwise copy the mask at every call.
    """
    if mask.dtype != torch.bool:
        return mask
    length = mask.shape[-1]
    wide = query.new_full((*mask.shape[:-1], length + -length % _ALIGNED), float("-inf"))
    return wide[..., :length].masked_fill_(mask, 0)


@operator("Silu")
def silu(attributes: Attributes, values: Tensor) -> Tensor:
    """Multiply a value by its sigmoid."""
    return F.silu(values)


@operator("Conv")
def conv(attributes: Attributes, values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a convolution, in the dtype of the weight."""
    values, stride, dilation = values.to(weight.dtype), attributes["strides"], attributes["dilations"]
    return F.conv2d(values, weight, bias, stride, _padding(attributes), dilation, attributes["group"])


@operator("AveragePool")
def average_pool(attributes: Attributes, values: Tensor) -> Tensor:
    """Apply average pooling."""
    return F.avg_pool2d(values, attributes["kernel_shape"], attributes["strides"], _padding(attributes))


def _padding(attributes: Attributes) -> list[int]:
    pads = list(attributes["pads"])
    if pads[:2] != pads[2:] or attributes["auto_pad"] != b"NOTSET":
        raise refuse("Conv or AveragePool", f"has unsupported padding: {pads}")
    return pads[:2]


@operator("LayerNormalization")
def layer_normalization(attributes: Attributes, values: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """Normalise the last axes, from `axis` on."""
    shape = values.shape[attributes.get("axis", -1) :]
    return F.layer_norm(values.float(), shape, scale, bias, attributes.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def instance_normalization(attributes: Attributes, values: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Normalise each channel [batch, channels, ...], over all the axes that follow."""
    normal = F.layer_norm(values.float(), values.shape[2:], eps=attributes.get("epsilon", 1e-5))
    sides = (-1, *[1] * (values.ndim - 2))
    return normal * scale.reshape(sides) + bias.reshape(sides)


@operator("Gelu")
def gelu(attributes: Attributes, values: Tensor) -> Tensor:
    """Apply the Gaussian error linear unit."""
    return F.gelu(values, approximate=attributes.get("approximate", b"none").decode())


@operator("Softmax")
def softmax(attributes: Attributes, values: Tensor) -> Tensor:
    """Apply softmax along an axis."""
    return values.float().softmax(attributes.get("axis", -1))


@operator("Div")
def div(attributes: Attributes, one: Tensor, other: Tensor) -> Tensor:
    """Divide; integers round towards zero."""
    return one / other if one.is_floating_point() else torch.div(one, other, rounding_mode="trunc")


@operator("Clip")
def clip(attributes: Attributes, values: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    """Clamp values between two bounds."""
    return values.clamp(least, most)


@operator("Where")
def where(attributes: Attributes, condition: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Select values by a condition, in float32, because masked values may be the lowest float32 number."""
    if one.is_floating_point():
        one, other = one.float(), other.float()
    return torch.where(condition, one, other)


@operator("Cast")
def cast(attributes: Attributes, values: Tensor) -> Tensor:
    """Convert to another type."""
    if attributes["to"] not in _TYPES:
        raise refuse("Cast", f"converts to the unsupported ONNX type {attributes['to']}")
    return values.to(_TYPES[attributes["to"]])


@operator("DequantizeLinear")
def dequantize(attributes: Attributes, values: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Dequantise integers with one scale."""
    if scale.numel() != 1:
        raise refuse("DequantizeLinear", "has more than one scale")
    return (values.float() - (0 if zero is None else zero.float())) * scale


@operator("QuantizeLinear")
def quantize(attributes: Attributes, values: Tensor, *scales: Tensor) -> Tensor:
    """Return values unchanged, because products read them without rounding; see `products`."""
    return values


@operator("Gather")
def gather(attributes: Attributes, values: Tensor, indices: Tensor) -> Tensor:
    """Take slices along an axis; negative indices count from the end."""
    axis = attributes.get("axis", 0) % values.ndim
    taken = values.index_select(axis, (indices % values.shape[axis]).flatten())
    return taken.reshape(*values.shape[:axis], *indices.shape, *values.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(attributes: Attributes, values: Tensor, indices: Tensor) -> Tensor:
    """Take an element for each index along an axis."""
    axis = attributes.get("axis", 0)
    return values.gather(axis, indices % values.shape[axis])


@operator("GatherND")
def gather_nd(attributes: Attributes, values: Tensor, indices: Tensor) -> Tensor:
    """Take the elements at indices [..., axes]."""
    if attributes.get("batch_dims"):
        raise refuse("GatherND", "has batch dimensions")
    return values[indices.unbind(-1)]


@operator("ArgMax")
def argmax(attributes: Attributes, values: Tensor) -> Tensor:
    """Return the index of the maximum along an axis."""
    return values.argmax(attributes.get("axis", 0), keepdim=bool(attributes.get("keepdims", 1)))


@operator("CumSum", host=(1,))
def cumsum(attributes: Attributes, values: Tensor, axis: Tensor) -> Tensor:
    """Return the cumulative sum along an axis."""
    if attributes.get("exclusive") or attributes.get("reverse"):
        raise refuse("CumSum", "is exclusive or runs in reverse")
    return values.cumsum(int(axis), dtype=values.dtype)


def _axes(axes: Tensor | None, values: Tensor) -> list[int]:
    return list(range(values.ndim)) if axes is None else axes.flatten().tolist()


@operator("ReduceSum", host=(1,))
def reduce_sum(attributes: Attributes, values: Tensor, axes: Tensor | None = None) -> Tensor:
    """Sum values along axes."""
    values = values.float() if values.is_floating_point() else values
    return values.sum(_axes(axes, values), keepdim=bool(attributes.get("keepdims", 1)), dtype=values.dtype)


@operator("ReduceMean", host=(1,))
def reduce_mean(attributes: Attributes, values: Tensor, axes: Tensor | None = None) -> Tensor:
    """Average values along axes."""
    return values.float().mean(_axes(axes, values), keepdim=bool(attributes.get("keepdims", 1)))


@operator("ReduceMax", host=(1,))
def reduce_max(attributes: Attributes, values: Tensor, axes: Tensor | None = None) -> Tensor:
    """Return the maximum along axes."""
    return values.amax(_axes(axes, values), keepdim=bool(attributes.get("keepdims", 1)))


@operator("ReduceL2", host=(1,))
def reduce_l2(attributes: Attributes, values: Tensor, axes: Tensor | None = None) -> Tensor:
    """Return the L2 norm along axes."""
    along, keep = _axes(axes, values), bool(attributes.get("keepdims", 1))
    lengths: Tensor = torch.linalg.vector_norm(values.float(), dim=along, keepdim=keep)
    return lengths
