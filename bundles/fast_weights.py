"""Read the weights of a fast image graph, rounded to eight bits as they are, to train it further."""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from sightline.arrays import Float32Array
from sightline.errors import DataError

_NORMS = {"attention.q_proj": "layernorm_before", "mlp.fc1": "layernorm_after"}  # linear maps, and the norms they read


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of an ImageStudent by name, from `student.pt` or a fast image graph."""
    if path.suffix == ".onnx":
        return weights_of_graph(path)
    return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def weights_of_graph(path: Path) -> dict[str, Tensor]:
    """Return the weights of an ImageStudent by name, from the graph that `write_image_graph` wrote.

    The exporter moves factors between the matrices and the norms before them, so these are not the weights that were
    trained, but a student that loads them computes nearly what the graph does.
    """
    graph = onnx.load(path).graph
    values = {one.name: np.asarray(numpy_helper.to_array(one)) for one in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    found = {name: value for name, value in values.items() if name.startswith(("encoder.", "heads."))}
    norms: dict[str, tuple[Float32Array, Float32Array]] = {}
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            name = node.input[6].removesuffix(".bias")
            matrix = values[node.input[1]].astype(np.float32) * values[node.input[3]]
            read = makers[makers[node.input[0]].input[0]]
            if read.op_type == "Mul":
                matrix = values[read.input[1]][:, None] * matrix
            elif read.op_type == "Reshape":
                add = makers[read.input[0]]
                norms[name] = values[makers[add.input[0]].input[1]], values[add.input[1]]
            found[f"{name}.weight"] = matrix.T
        elif node.op_type == "MatMulNBits":
            (add,) = (one for one in graph.node if node.output[0] in one.input)
            name = next(one for one in add.input if one in values).removesuffix(".bias")
            found[f"{name}.weight"] = _from_blocks(node, values)
    if not {"heads.fragments", "heads.embedding"} <= norms.keys():
        raise DataError(f"{path}: not a fast image graph")
    for name, norm in norms.items():
        layer, part = ".".join(name.split(".")[:3]), ".".join(name.split(".")[3:])
        if part in _NORMS:
            found[f"{layer}.{_NORMS[part]}.weight"], found[f"{layer}.{_NORMS[part]}.bias"] = norm
    weight, bias = norms["heads.fragments"]
    found["heads.norm.weight"], found["heads.norm.bias"] = weight, bias
    found["heads.embedding.weight"] = found["heads.embedding.weight"] * (norms["heads.embedding"][0] / weight)
    return {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in found.items()}


def _from_blocks(node: onnx.NodeProto, values: dict[str, np.ndarray]) -> Float32Array:
    """Return the matrix [outputs, inputs] of a product whose weights are rounded in blocks with a scale each."""
    about = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    scales = values.get(f"{node.input[2]}_half", values.get(node.input[2]))
    if about["bits"] != 8 or scales is None:
        raise DataError(f"the product {node.output[0]} does not have eight-bit weights")
    whole = values[node.input[1]].astype(np.float32) - 128
    matrix = whole * scales.reshape(*whole.shape[:2], 1).astype(np.float32)
    return matrix.reshape(about["N"], -1)[:, : about["K"]]
