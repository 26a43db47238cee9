"""Four-bit matrices, in blocks of 32 numbers that share a scale: word tables, and matrix products."""

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from sightline.onnx_export.observe import Sample, observed

BLOCK = 32
_LARGE = 1 << 20  # numbers; smaller tables are not worth the loss of precision
_MICROSOFT = "com.microsoft"
_RATIOS = np.linspace(1.0, 0.7, 13)  # fractions of a block's largest magnitude to try for its scale
_DAMPING = 0.01  # relative to the mean of the moments' diagonal
_TOGETHER = 64  # columns whose errors are propagated to all later ones at once
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def shrink_tables(model: onnx.ModelProto, large: int = _LARGE) -> None:
    """Store tables of at least `large` numbers with four bits per number, in place.

    A table is a float matrix that a graph uses only for row lookups. Tables whose width is not a multiple of 32 are not
    changed.
    """
    graph = model.graph
    for table in list(graph.initializer):
        readers = [node for node in graph.node if table.name in node.input]
        if not readers or not _is_large(table, large) or not all(_looks_up(node, table.name) for node in readers):
            continue
        rows = numpy_helper.to_array(table)
        scales = block_scales(rows).astype(np.float16)
        packed = _packed(_nearest(rows, scales.astype(np.float32)))
        names = f"{table.name}_packed", f"{table.name}_scales"
        for node in readers:
            _look_up_packed(graph, node, *names)
        table.CopyFrom(numpy_helper.from_array(packed, names[0]))
        graph.initializer.append(numpy_helper.from_array(scales, names[1]))
    _use_microsoft(model)


def shrink_products(model: onnx.ModelProto, names: Collection[str], samples: Iterable[Sample] = ()) -> None:
    """Store the constant matrices of the named products with four bits per weight, in place.

    samples: a few hundred typical inputs of the graph. With them, each weight is rounded so as to compensate for the
    errors of those before it (GPTQ, Frantar et al. 2022, algorithm 1); without them, to the nearest number.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.name in names and len(constants[node.input[1]].dims) == 2]
    moments = _moments(model, sorted({node.input[0] for node in products}), samples)
    for node in products:
        matrix = numpy_helper.to_array(constants[node.input[1]])
        whole, scales = round_matrix(matrix, moments.get(node.input[0]))
        packed = _packed(whole).reshape(*scales.shape, BLOCK // 2)
        inputs = [node.input[0], f"{node.name}_packed", f"{node.name}_scales"]
        graph.initializer.append(numpy_helper.from_array(packed, inputs[1]))
        graph.initializer.append(numpy_helper.from_array(scales, inputs[2]))
        sizes = {"K": len(matrix), "N": len(scales), "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        outputs = list(node.output)
        node.CopyFrom(helper.make_node("MatMulNBits", inputs, outputs, node.name, domain=_MICROSOFT, **sizes))
    read = {name for node in graph.node for name in node.input}
    for tensor in [one for one in graph.initializer if one.name not in read]:
        graph.initializer.remove(tensor)
    _use_microsoft(model)


def block_scales(rows: Floats, importance: Floats | None = None) -> Floats:
    """Find scales [n, blocks] for the blocks of rows [n, width], by trying several for the least squared error.

    importance: [width], the weight of each column's squared error. The number of largest magnitude in a block becomes
    -8, so a scale may be negative. Scales are float16 numbers.
    """
    blocks = rows.reshape(len(rows), -1, BLOCK)
    factors = np.ones(BLOCK, np.float32) if importance is None else importance.reshape(-1, BLOCK)
    peaks = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)[..., 0]
    best, least = np.ones_like(peaks), np.full_like(peaks, np.inf)
    for ratio in _RATIOS:
        scales = np.where(np.abs(peaks) < 1e-5, 1, peaks * (ratio / -8)).astype(np.float16).astype(np.float32)
        off = (_nearest(rows, scales) * np.repeat(scales, BLOCK, 1) - rows).reshape(blocks.shape)
        errors = (off * off * factors).sum(-1)
        best, least = np.where(errors < least, scales, best), np.minimum(errors, least)
    return best


def round_matrix(matrix: Floats, moments: Floats | None = None) -> tuple[Floats, Floats]:
    """Round a matrix [inputs, outputs] to integers [outputs, inputs, padded to blocks] with scales.

    moments: [inputs, inputs], the products of every two inputs, summed over samples.
    """
    inputs, outputs = matrix.shape
    rows = np.zeros((outputs, -(-inputs // BLOCK) * BLOCK), np.float32)
    rows[:, :inputs] = matrix.T
    if moments is None:
        scales = block_scales(rows)
        return _nearest(rows, scales), scales
    scales = block_scales(rows, np.pad(np.diagonal(moments), (0, rows.shape[1] - inputs)))
    rows[:, :inputs] = _compensated(rows[:, :inputs], np.repeat(scales, BLOCK, 1)[:, :inputs], moments)
    return rows, scales


def _compensated(rows: Floats, scales: Floats, moments: Floats) -> Floats:
    """Round column by column, most important first, compensating for each error in the columns that remain."""
    order = np.argsort(-np.diagonal(moments), kind="stable")
    rows, scales, whole = rows[:, order], scales[:, order], np.empty_like(rows)
    damped = moments[np.ix_(order, order)].astype(np.float64)
    damped[np.diag_indices_from(damped)] += max(_DAMPING * np.diagonal(damped).mean(), 1e-9)
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
    for start in range(0, len(factor), _TOGETHER):
        end = min(start + _TOGETHER, len(factor))
        errors = np.empty((len(rows), end - start), np.float32)
        for at in range(start, end):
            whole[:, at] = np.clip(np.round(rows[:, at] / scales[:, at]), -8, 7)
            error = (rows[:, at] - whole[:, at] * scales[:, at]) / factor[at, at]
            rows[:, at:end] -= np.outer(error, factor[at, at:end])
            errors[:, at - start] = error
        rows[:, end:] -= errors @ factor[start:end, end:]
    return whole[:, np.argsort(order)]


def _moments(model: onnx.ModelProto, names: list[str], samples: Iterable[Sample]) -> dict[str, Floats]:
    """Return the products of every two channels of the named values, summed over the samples, if there are any."""
    found: dict[str, Floats] = {}
    for values in observed(model, names, samples) if names else ():
        for name, value in zip(names, values, strict=True):
            rows = value.reshape(-1, value.shape[-1])
            found[name] = found.get(name, np.float32(0)) + rows.T @ rows
    return found


def _nearest(rows: Floats, scales: Floats) -> Floats:
    """Return the nearest integer from -8 to 7 for each number of rows [n, width], given scales [n, blocks]."""
    return np.clip(np.round(rows / np.repeat(scales, BLOCK, 1)), -8, 7)


def _packed(whole: Floats) -> Bytes:
    """Pack two numbers into a byte, the first in the lower half; 8 represents 0."""
    shifted = (whole + 8).astype(np.uint8)
    packed: Bytes = shifted[:, 0::2] | shifted[:, 1::2] << np.uint8(4)
    return packed


def _is_large(table: onnx.TensorProto, large: int) -> bool:
    is_matrix = table.data_type == TensorProto.FLOAT and len(table.dims) == 2
    return is_matrix and table.dims[1] % BLOCK == 0 and table.dims[0] * table.dims[1] >= large


def _looks_up(node: onnx.NodeProto, table: str) -> bool:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return node.op_type == "Gather" and node.input[0] == table and axis == 0


def _look_up_packed(graph: onnx.GraphProto, node: onnx.NodeProto, packed: str, scales: str) -> None:
    """Replace a lookup with a lookup in a packed table; it returns float16, the type of the scales."""
    half, output = f"{node.output[0]}_half", node.output[0]
    cast = helper.make_node("Cast", [half], [output], f"{node.name}_cast", to=TensorProto.FLOAT)
    graph.node.insert(list(graph.node).index(node) + 1, cast)
    inputs, sizes = [packed, node.input[1], scales], {"bits": 4, "block_size": BLOCK}
    node.CopyFrom(helper.make_node("GatherBlockQuantized", inputs, [half], node.name, domain=_MICROSOFT, **sizes))


def _use_microsoft(model: onnx.ModelProto) -> None:
    """Import the domain of ONNX Runtime's own operators."""
    if _MICROSOFT not in {one.domain for one in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
