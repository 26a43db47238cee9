"""Products with a constant matrix, in all the forms found in graphs, as one operator: `Linear`.

Quantised matrices are dequantised once. Activations are not rounded, unlike in ONNX Runtime, so results are closer to
those of the float model.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sightline.kernels.operators import Attributes, refuse
from sightline.kernels.packed_operators import unpacked

_SCORES = 64  # columns; a narrower matrix computes scores, which need float32


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One operator of a graph: the names of its inputs ("" for an absent one) and outputs."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes


def with_products(
    nodes: Sequence[GraphNode], constants: Mapping[str, Tensor], outputs: Sequence[str]
) -> list[GraphNode]:
    """Replace every product with a constant matrix, and a following addition of a constant, by a `Linear`.

    Its attributes are the weight [columns, rows] and the bias [columns], or None.
    """
    _check_rounding(nodes)
    readers = Counter(name for node in nodes for name in node.inputs) + Counter(outputs)
    adding = {name: node for node in nodes if node.operator == "Add" for name in node.inputs}
    kept: list[GraphNode] = []
    added: set[tuple[str, ...]] = set()
    for node in nodes:
        product = _product(node, constants)
        if product is None:
            kept.extend([node] if node.outputs not in added else [])
            continue
        (weight, bias), made = product, node.outputs
        addition = adding.get(made[0]) if readers[made[0]] == 1 and bias is None else None
        vector = None if addition is None else _vector(addition, len(weight), constants)
        if addition is not None and vector is not None:
            bias, made = vector, addition.outputs
            added.add(made)
        kept.append(GraphNode("Linear", node.inputs[:1], made, {"weight": weight, "bias": bias}))
    return kept


def placed(node: GraphNode, device: torch.device, dtype: torch.dtype) -> GraphNode:
    """Return the product with its weights on a device and in a dtype; float32 for products that compute scores."""
    weight, bias = node.attributes["weight"], node.attributes["bias"]
    chosen = torch.float32 if makes_scores(node) else dtype
    moved = {"weight": weight.to(device, chosen), "bias": None if bias is None else bias.to(device, chosen)}
    return replace(node, attributes={**node.attributes, **moved})


def makes_scores(node: GraphNode) -> bool:
    """Return whether a product computes scores, which is assumed if it has very few columns."""
    return len(node.attributes["weight"]) < _SCORES


def _check_rounding(nodes: Sequence[GraphNode]) -> None:
    """Reject quantised activations that are read by anything but a quantised product."""
    rounded = {node.outputs[0] for node in nodes if node.operator == "QuantizeLinear"}
    for node in nodes:
        reads = rounded.intersection(node.inputs)
        if bool(reads) != (node.operator == "MatMulIntegerToFloat"):
            raise refuse(
                node.operator, "reads quantised numbers" if reads else "reads integers that no QuantizeLinear made"
            )


def _product(node: GraphNode, constants: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None] | None:
    """Return the weight and bias of a product with a constant matrix; None for any other node."""
    way, given = _WAYS.get(node.operator), [constants.get(name) for name in node.inputs[1:]]
    if way is None or any(name and part is None for name, part in zip(node.inputs[1:], given, strict=True)):
        return None
    weight, bias = way(node.attributes, *given)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise refuse(node.operator, f"adds a value that is not a vector: {tuple(bias.shape)}")
    return (weight, bias) if weight.ndim == 2 else None


def _vector(addition: GraphNode, columns: int, constants: Mapping[str, Tensor]) -> Tensor | None:
    """Return the constant vector that an addition adds to each row of a product; None if it is something else."""
    found = (constants[name] for name in addition.inputs if name in constants)
    return next((constant for constant in found if constant.shape == (columns,)), None)


def _of_matmul(attributes: Attributes, matrix: Tensor) -> tuple[Tensor, None]:
    return matrix.transpose(0, -1).contiguous(), None


def _of_gemm(attributes: Attributes, matrix: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    if attributes.get("transA") or attributes.get("alpha", 1) != 1 or attributes.get("beta", 1) != 1:
        raise refuse("Gemm", "scales or transposes its inputs")
    return (matrix if attributes.get("transB") else matrix.T.contiguous()), bias


def _of_blocks(
    attributes: Attributes, packed: Tensor, scales: Tensor, zeros: Tensor | None = None, *others: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Dequantise a matrix of 4- or 8-bit integers with a scale, and optionally a zero point, per block of a column."""
    columns, rows, bits = attributes["N"], attributes["K"], attributes["bits"]
    block = attributes["block_size"]
    if bits not in (4, 8):
        raise refuse("MatMulNBits", f"has {bits} bits per number, not 4 or 8")
    if others and others[0] is not None:
        raise refuse("MatMulNBits", "has reordered rows")
    whole = unpacked(packed.reshape(columns, -1), bits).float().reshape(columns, -1, block)
    blocks = whole.shape[1]
    zero: Tensor | float = 2.0 ** (bits - 1)
    if zeros is not None and zeros.dtype == torch.uint8:
        zero = unpacked(zeros.reshape(columns, -1), bits).float()[:, :blocks, None]
    elif zeros is not None:
        zero = zeros.reshape(columns, blocks, 1).float()
    weight = (whole - zero) * scales.reshape(columns, blocks, 1).float()
    return weight.reshape(columns, -1)[:, :rows].contiguous(), others[1] if len(others) > 1 else None


def _of_whole_numbers(
    attributes: Attributes,
    matrix: Tensor,
    scale: Tensor,
    steps: Tensor,
    zero: Tensor | None = None,
    steps_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Dequantise a matrix of integers with a scale per column."""
    if steps_zero is not None:
        raise refuse("MatMulIntegerToFloat", "has a matrix with an unsupported zero point")
    return (matrix.float() * steps).T.contiguous(), bias


_WAYS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "MatMul": _of_matmul,
    "Gemm": _of_gemm,
    "MatMulNBits": _of_blocks,
    "MatMulIntegerToFloat": _of_whole_numbers,
}
