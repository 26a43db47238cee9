"""Operator fusion: merge steps, because small steps are limited by launch overhead and large ones by memory bandwidth.

Results stay the same up to rounding.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.kernels.products import GraphNode, makes_scores


def merged(nodes: Sequence[GraphNode], constants: Mapping[str, Tensor], outputs: Sequence[str]) -> list[GraphNode]:
    """Fuse the operators of a graph whose products are already `Linear`."""
    return _with_hiding(_with_joined_products(_with_silu(nodes, constants, outputs)))


def _with_silu(nodes: Sequence[GraphNode], constants: Mapping[str, Tensor], outputs: Sequence[str]) -> list[GraphNode]:
    """Fuse x * sigmoid(c * x) between two products into a `Silu` step, scaling the products by c and 1 / c.

    This is CLIP's approximate GELU: three steps over the widest activations.
    """
    readers: dict[str, list[GraphNode]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    changed: dict[str, GraphNode | None] = {}  # by a node's output; None if it is no longer needed
    for node in nodes:
        found = _sigmoid_unit(node, readers, constants)
        if found is None or any(name in outputs for name in (*node.outputs, *(one.outputs[0] for one in found))):
            continue
        scaled, sigmoid, unit = found
        after = readers.get(unit.outputs[0], [])
        factor = float(constants[scaled.inputs[1]])
        if factor and all(one.operator == "Linear" for one in after):
            changed[node.outputs[0]] = _scaled(changed.get(node.outputs[0]) or node, factor, factor)
            changed |= {scaled.outputs[0]: None, sigmoid.outputs[0]: None}
            changed[unit.outputs[0]] = GraphNode("Silu", node.outputs, unit.outputs, {})
            for one in after:
                changed[one.outputs[0]] = _scaled(changed.get(one.outputs[0]) or one, 1 / factor, 1.0)
    kept = (changed.get(node.outputs[0], node) for node in nodes)
    return [node for node in kept if node is not None]


def _sigmoid_unit(
    node: GraphNode, readers: Mapping[str, Sequence[GraphNode]], constants: Mapping[str, Tensor]
) -> tuple[GraphNode, GraphNode, GraphNode] | None:
    """Return the three nodes of x * sigmoid(c * x), with x from a product; None if other nodes read their values."""
    if node.operator != "Linear":
        return None
    made = node.outputs[0]
    scaled = [one for one in readers.get(made, []) if one.operator == "Mul" and one.inputs[0] == made]
    scaled = [one for one in scaled if one.inputs[1] in constants and constants[one.inputs[1]].numel() == 1]
    if len(scaled) != 1:
        return None
    sigmoids = readers.get(scaled[0].outputs[0], [])
    if len(sigmoids) != 1 or sigmoids[0].operator != "Sigmoid":
        return None
    units = readers.get(sigmoids[0].outputs[0], [])
    is_whole = len(units) == 1 and units[0].operator == "Mul" and made in units[0].inputs and len(readers[made]) == 2
    return (scaled[0], sigmoids[0], units[0]) if is_whole else None


def _scaled(node: GraphNode, of_weight: float, of_bias: float) -> GraphNode:
    weight, bias = node.attributes["weight"], node.attributes["bias"]
    own = {"weight": weight * of_weight, "bias": None if bias is None else bias * of_bias}
    return replace(node, attributes={**node.attributes, **own})


def _with_joined_products(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Merge products with the same input, such as the queries, keys and values of attention."""
    together: dict[tuple[str, bool], list[GraphNode]] = {}
    for node in nodes:
        if node.operator == "Linear" and not makes_scores(node):
            together.setdefault((node.inputs[0], node.attributes["bias"] is None), []).append(node)
    first = {of[0].outputs: _joined(of) for of in together.values()}
    others = {node.outputs for of in together.values() for node in of[1:]}
    return [first.get(node.outputs, node) for node in nodes if node.outputs not in others]


def _joined(nodes: Sequence[GraphNode]) -> GraphNode:
    if len(nodes) == 1:
        return nodes[0]
    weights, biases = ([node.attributes[name] for node in nodes] for name in ("weight", "bias"))
    attributes = {
        "weight": torch.cat(weights),
        "bias": None if biases[0] is None else torch.cat(biases),
        "sizes": [len(weight) for weight in weights],
    }
    return GraphNode("Linear", nodes[0].inputs, tuple(node.outputs[0] for node in nodes), attributes)


def _with_hiding(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Prepare the attention mask once for all layers that share it."""
    masked = Counter(node.inputs[3] for node in nodes if _is_masked(node))
    found: list[GraphNode] = []
    ready: set[str] = set()
    for node in nodes:
        if not _is_masked(node) or masked[node.inputs[3]] == 1:
            found.append(node)
            continue
        query, _, _, mask = node.inputs
        if mask not in ready:
            found.append(GraphNode("Hiding", (mask, query), (f"{mask}, hiding",), {}))
            ready.add(mask)
        found.append(replace(node, inputs=(*node.inputs[:3], f"{mask}, hiding")))
    return found


def _is_masked(node: GraphNode) -> bool:
    return node.operator == "Attention" and len(node.inputs) == 4 and bool(node.inputs[3])
