"""Static int8 quantisation of matrix products, with activation ranges from sample inputs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from sightline.datasets import Record
from sightline.errors import DataError
from sightline.media import ImageInput, load_pixels
from sightline.onnx_export.observe import Sample, observed

_SHARE = 0.8  # fraction of a channel's spread that moves from activations to weights
_LEAST = 1e-4  # minimum range of a channel that was constant in the samples
_ROWS = 8  # rows of each sample on which a product is checked
_ERROR = 0.06  # relative error of a row; products with a larger one keep dynamic ranges
_MICROSOFT = "com.microsoft"
Floats = npt.NDArray[np.float32]


def sample_images(records: Sequence[Record], preprocess: ImageInput, count: int = 128) -> Floats:
    """Return the pixels [images, 3, size, size] of some readable images, evenly spaced over a data set."""
    chosen = records[:: max(1, len(records) // count)][:count]
    loaded = list(load_pixels([record.image for record in chosen], preprocess))
    pixels = [one.pixels for one in loaded if one.pixels is not None]
    if not pixels:
        why = f": {loaded[0].error.what}" if loaded and loaded[0].error else ""
        raise DataError(
            f"there is no readable image to measure quantisation ranges on{why}", "Use data with readable images."
        )
    return np.stack(pixels)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The range of a value in the samples.

    least, greatest: the extremes of every channel in every sample, [samples, channels]. rows: some complete rows,
    [rows, channels].
    """

    least: Floats
    greatest: Floats
    rows: Floats


def fix_ranges(model: onnx.ModelProto, samples: Iterable[Sample], leave: Collection[str] = ()) -> None:
    """Quantise products of `model` with constant matrices to integer products, in place, where that is safe.

    samples: about a hundred typical inputs of the graph, one item each.
    leave: names of products to leave unchanged, besides those with a relative error above 6 % in any checked row.

    A channel whose values are a hundred times those of others would use up all of the 256 steps, so channels are first
    equalised: each is divided by a factor, and its row of the matrix multiplied by it (SmoothQuant, Xiao et al. 2023).
    Then one scale suffices for a whole tensor. With fixed ranges, an item's result does not depend on the rest of its
    batch.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.name not in leave and _is_matrix(constants.get(node.input[1])):
            groups.setdefault(node.input[0], []).append(node)
    seen = _observed(model, list(groups), samples)
    rewriting = _Rewriting(model)
    for source, nodes in groups.items():
        matrices = [numpy_helper.to_array(constants[node.input[1]]) for node in nodes]
        plan = _Plan.of(seen[source], matrices)
        if plan.error(seen[source].rows, matrices) <= _ERROR:
            rewriting.quantize(source, nodes, plan)
    rewriting.finish()


def _is_matrix(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and len(tensor.dims) == 2


def _observed(model: onnx.ModelProto, names: list[str], samples: Iterable[Sample]) -> dict[str, _Seen]:
    """Return the ranges of the named values of a graph over the samples."""
    found: dict[str, list[tuple[Floats, Floats, Floats]]] = {name: [] for name in names}
    for values in observed(model, names, samples):
        for name, value in zip(names, values, strict=True):
            rows = value.reshape(-1, value.shape[-1])
            found[name].append((rows.min(0), rows.max(0), rows[:: -(-len(rows) // _ROWS)]))
    return {name: _seen(of_samples) for name, of_samples in found.items()}


def _seen(of_samples: list[tuple[Floats, Floats, Floats]]) -> _Seen:
    least, greatest, rows = zip(*of_samples, strict=True)
    return _Seen(np.stack(least), np.stack(greatest), np.concatenate(rows))


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the products that read one value are quantised.

    divisor: [channels], what each channel is divided by to equalise them. scale, zero: those of the activations.
    matrices: quantised matrices. steps: the scale of each matrix, by column.
    """

    divisor: Floats
    scale: float
    zero: int
    matrices: tuple[npt.NDArray[np.int8], ...]
    steps: tuple[Floats, ...]

    @classmethod
    def of(cls, seen: _Seen, matrices: list[Floats]) -> "_Plan":
        """Split the spread of channels between values and weights; the range covers all samples."""
        spread = np.maximum(np.maximum(-seen.least, seen.greatest).max(0), _LEAST)
        weights = np.maximum(np.max([np.abs(matrix).max(1) for matrix in matrices], axis=0), _LEAST)
        divisor: Floats = (spread**_SHARE / weights ** (1 - _SHARE)).astype(np.float32)
        least = min(float((seen.least / divisor).min()), 0.0)
        greatest = max(float((seen.greatest / divisor).max()), 0.0)
        scale = max(greatest - least, 1e-12) / 255
        scaled = [matrix * divisor[:, None] for matrix in matrices]
        steps = [(np.maximum(np.abs(one).max(0), 1e-12) / 127).astype(np.float32) for one in scaled]
        whole = [np.round(one / step).astype(np.int8) for one, step in zip(scaled, steps, strict=True)]
        return cls(divisor, scale, round(-least / scale), tuple(whole), tuple(steps))

    def error(self, rows: Floats, matrices: list[Floats]) -> float:
        """Return the largest relative error of any row's result."""
        taken = np.clip(np.round(rows / self.divisor / self.scale) + self.zero, 0, 255) - self.zero
        worst = 0.0
        for matrix, whole, steps in zip(matrices, self.matrices, self.steps, strict=True):
            right = rows @ matrix
            off = (taken.astype(np.float32) @ whole.astype(np.float32)) * (steps * self.scale) - right
            lengths = np.maximum(np.linalg.norm(right, axis=1), 1e-12)
            worst = max(worst, float((np.linalg.norm(off, axis=1) / lengths).max()))
        return worst


class _Rewriting:
    """A graph whose products are being replaced, group by group."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, self._graph = model, model.graph
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._made = {name: node for node in model.graph.node for name in node.output}
        self._users: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self._before: dict[str, list[onnx.NodeProto]] = {}
        self._gone: set[str] = set()

    def quantize(self, source: str, nodes: list[onnx.NodeProto], plan: _Plan) -> None:
        """Replace the products that read one value."""
        prefix = nodes[0].name
        scale = self._constant(f"{prefix}_scale", np.float32(plan.scale))
        zero = self._constant(f"{prefix}_zero", np.uint8(plan.zero))
        alike, added = self._alike(source, nodes, plan.divisor, prefix)
        whole = f"{prefix}_whole"
        added.append(helper.make_node("QuantizeLinear", [alike, scale, zero], [whole], name=f"{whole}_node"))
        self._before[nodes[0].output[0]] = added
        for node, matrix, steps in zip(nodes, plan.matrices, plan.steps, strict=True):
            self._replace(node, [whole, scale, zero], matrix, steps)

    def finish(self) -> None:
        """Insert the new nodes, and drop unused constants."""
        kept: list[onnx.NodeProto] = []
        for node in self._graph.node:
            kept.extend(self._before.get(node.output[0], []))
            if node.output[0] not in self._gone:
                kept.append(node)
        read = {name for node in kept for name in node.input}
        constants = [tensor for tensor in self._constants.values() if tensor.name in read]
        nodes = [_copy(node) for node in kept]
        tensors = [_copy(tensor) for tensor in constants]
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(nodes)
        self._graph.initializer.extend(tensors)
        if _MICROSOFT not in {one.domain for one in self._model.opset_import}:
            self._model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))

    def _alike(
        self, source: str, nodes: list[onnx.NodeProto], divisor: Floats, prefix: str
    ) -> tuple[str, list[onnx.NodeProto]]:
        """Divide the channels of a value, in the preceding normalisation if nothing else reads its output."""
        maker = self._made.get(source)
        outputs = {output.name for output in self._graph.output}
        if maker is not None and maker.op_type == "LayerNormalization" and source not in outputs:
            users = {user.output[0] for user in self._users[source]}
            if users == {node.output[0] for node in nodes} and all(name in self._constants for name in maker.input[1:]):
                for place, name in enumerate(maker.input[1:], 1):
                    divided = numpy_helper.to_array(self._constants[name]) / divisor
                    maker.input[place] = self._constant(f"{prefix}_{place}", divided.astype(np.float32))
                return source, []
        factor = self._constant(f"{prefix}_factor", (1 / divisor).astype(np.float32))
        node = helper.make_node("Mul", [source, factor], [f"{prefix}_alike"], name=f"{prefix}_alike_node")
        return f"{prefix}_alike", [node]

    def _replace(self, node: onnx.NodeProto, read: list[str], matrix: npt.NDArray[np.int8], steps: Floats) -> None:
        """Replace a product, and the addition after it, with a quantised product."""
        whole, scale, zero = read
        matrix_name = self._constant(f"{node.name}_matrix", matrix)
        inputs = [whole, matrix_name, scale, self._constant(f"{node.name}_steps", steps), zero, ""]
        output = node.output[0]
        bias = self._bias(output)
        if bias is not None:
            addition, name = bias
            inputs.append(name)
            output = addition.output[0]
            self._gone.add(addition.output[0])
        product = helper.make_node("MatMulIntegerToFloat", inputs, [output], name=node.name, domain=_MICROSOFT)
        product.metadata_props.extend(node.metadata_props)
        self._before.setdefault(node.output[0], []).append(product)
        self._gone.add(node.output[0])

    def _bias(self, product: str) -> tuple[onnx.NodeProto, str] | None:
        """Return the node that adds a constant vector to a product that nothing else reads, and the vector's name."""
        users = self._users.get(product, [])
        if len(users) != 1 or users[0].op_type != "Add":
            return None
        (other,) = (name for name in users[0].input if name != product)
        constant = self._constants.get(other)
        return (users[0], other) if constant is not None and len(constant.dims) == 1 else None

    def _constant(self, name: str, value: npt.NDArray[Any] | np.generic) -> str:
        self._constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name


def _copy(proto: Any) -> Any:
    """Return a copy of a protobuf message that is independent of the list it comes from."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    return copy
