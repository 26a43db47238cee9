"""Operators that ONNX Runtime computes faster on a CPU than those that torch's exporter writes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

_SWAP = [0, 2, 1, 3]  # from [batch, n, heads, width] to [batch, heads, n, width], and back


def use_faster_operators(model: onnx.ModelProto) -> None:
    """Replace operators of a graph in place; a small vision transformer in int8 then takes a sixth less time.

    - `Gelu` uses its tanh approximation, which takes half the time. It differs by less than 0.0005, a small fraction of
      a step of int8 activations.
    - `LayerNormalization` becomes `InstanceNormalization`, a product and a sum, which together take a third of the
      time. Results are the same up to rounding.
    - `Attention` reads and writes [batch, n, heads * width] without transposing, and has no mask that hides nothing.
      Results are the same.
    """
    _approximate_gelu(model)
    _split_layer_norms(model)
    _merge_heads(model)
    _drop_unread(model)


def _approximate_gelu(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "Gelu" and not node.domain:
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("approximate", "tanh"))


def _split_layer_norms(model: onnx.ModelProto) -> None:
    widths = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 1}
    added: dict[str, npt.NDArray[Any]] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "LayerNormalization" and _attribute(node, "axis") in (None, -1) and node.input[1] in widths:
            nodes += _normalised_rows(node, widths[node.input[1]], added)
        else:
            nodes.append(node)
    _set_nodes(model, nodes)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in added.items())


def _normalised_rows(node: onnx.NodeProto, width: int, added: dict[str, npt.NDArray[Any]]) -> list[onnx.NodeProto]:
    """Return nodes that normalise each row of a value as the only channel of an item, [rows, 1, width].

    added: constants that the nodes read; missing ones are added.
    """
    given, output, rows = node.input[0], node.output[0], f"rows_of_{width}"
    added |= {rows: np.array([-1, 1, width]), "unit_scale": np.ones(1, np.float32), "no_bias": np.zeros(1, np.float32)}
    epsilon = {"epsilon": _attribute(node, "epsilon") or 1e-5}
    steps: list[tuple[str, list[str], dict[str, Any]]] = [
        ("Reshape", [rows], {}),
        ("InstanceNormalization", ["unit_scale", "no_bias"], epsilon),
        ("Mul", [node.input[1]], {}),
        *(("Add", [bias], {}) for bias in node.input[2:]),
    ]
    made, value = [helper.make_node("Shape", [given], [f"{output}_shape"])], given
    for operator, others, attributes in steps:
        made.append(helper.make_node(operator, [value, *others], [f"{output}_{operator}"], **attributes))
        value = f"{output}_{operator}"
    return [*made, helper.make_node("Reshape", [value, f"{output}_shape"], [output])]


def _merge_heads(model: onnx.ModelProto) -> None:
    links = _Links(model)
    for node in model.graph.node:
        if node.op_type != "Attention" or node.domain or len(node.output) > 1 or len(node.input) > 4:
            continue
        views, output = [links.heads_of(name) for name in node.input[:3]], links.joined_heads(node.output[0])
        if output is None or None in views:
            continue
        (query, heads), (key, key_heads), (value, _) = (view for view in views if view)
        masks = [name for name in node.input[3:] if name and not links.is_always_true(name)]
        node.attribute.append(helper.make_attribute("q_num_heads", heads))
        node.attribute.append(helper.make_attribute("kv_num_heads", key_heads))
        node.input[:] = [query, key, value, *masks]
        links.makers[output].output[0] = f"{output}_unread"
        node.output[0] = output


class _Links:
    """Which node makes and which nodes read each value of a graph, and its constants."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self._outputs = {output.name for output in model.graph.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def heads_of(self, name: str) -> tuple[str, int] | None:
        """Return the value [batch, n, heads * width] that one of [batch, heads, n, width] is a view of, and `heads`.

        None if it is no such view, or if `heads` is not a constant: 0 or -1 in the shape stand for other numbers.
        """
        swap = self.makers.get(name)
        split = self.makers.get(swap.input[0]) if swap is not None and _is_swap(swap) else None
        shape = self._shape(split)
        if split is None or shape is None or len(shape) != 4 or shape[2] < 1:
            return None
        return split.input[0], int(shape[2])

    def joined_heads(self, name: str) -> str | None:
        """Return the value [batch, n, heads * width] made of a value [batch, heads, n, width] with no other reader."""
        swap = self._only_reader(name)
        join = self._only_reader(swap.output[0]) if swap is not None and _is_swap(swap) else None
        shape = self._shape(join)
        return None if join is None or shape is None or len(shape) != 3 else join.output[0]

    def is_always_true(self, name: str) -> bool:
        """Return whether a mask is a constant, or repeats one, that hides nothing."""
        maker = self.makers.get(name)
        found = self.constants.get(maker.input[0] if maker is not None and maker.op_type == "Expand" else name)
        return found is not None and found.dtype == np.bool_ and bool(found.all())

    def _only_reader(self, name: str) -> onnx.NodeProto | None:
        """Return the node that reads a value, if it is the only one and the value is no output of the graph."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _shape(self, node: onnx.NodeProto | None) -> npt.NDArray[Any] | None:
        """Return the constant shape that a node reshapes to."""
        return None if node is None or node.op_type != "Reshape" else self.constants.get(node.input[1])


def _is_swap(node: onnx.NodeProto) -> bool:
    return bool(node.op_type == "Transpose" and _attribute(node, "perm") == _SWAP)


def _drop_unread(model: onnx.ModelProto) -> None:
    """Remove nodes and constants that no output depends on."""
    needed, kept = {output.name for output in model.graph.output}, list[onnx.NodeProto]()
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    _set_nodes(model, kept[::-1])
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del model.graph.initializer[:]
    model.graph.initializer.extend(copies)


def _set_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    """Return the value of an attribute; None if the node does not have it."""
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), None)
