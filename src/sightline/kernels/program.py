"""A bundle's graph as a torch program: read from its ONNX file, and planned for inputs of given shapes.

Whatever depends only on the shapes of the inputs is computed once per shape, on the CPU; the plan contains the rest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from sightline.errors import BundleError
from sightline.kernels import packed_operators, recurrent, shape_operators  # noqa: F401 (registers their operators)
from sightline.kernels.graph_fusion import merged
from sightline.kernels.operators import OPERATORS, refuse
from sightline.kernels.products import GraphNode, placed, with_products


@dataclass(frozen=True, slots=True)
class Step:
    """An operator with its inputs: names of earlier outputs, or constant tensors.

    last: names that no later step reads, so that their memory can be freed.
    """

    node: GraphNode
    inputs: tuple[str | Tensor | None, ...]
    last: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """The steps for inputs of certain shapes. known: outputs that depend only on the shapes."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    known: Mapping[str, Tensor]

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the steps on inputs of these shapes, on the program's device; floating outputs are float32."""
        values = {**self.known, **inputs}
        for step in self.steps:
            read = [values[part] if isinstance(part, str) else part for part in step.inputs]
            values.update(_made(step.node, read))
            for name in step.last:
                del values[name]
        return _singles(values, self.outputs)


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a graph: its type, and its shape with None for a dynamic axis."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]

    def example(self, length: int, device: torch.device) -> Tensor:
        """Return a tensor of ones, of this length along dynamic axes, which is valid as token ids and as a mask."""
        return torch.ones([side or length for side in self.shape], dtype=self.dtype, device=device)


class Program:
    """A graph with its weights on a device: products with constant matrices in `dtype`, everything else in float32."""

    def __init__(self, model: onnx.ModelProto, device: torch.device, dtype: torch.dtype) -> None:
        graph = model.graph
        self.device = device
        self.outputs = tuple(output.name for output in graph.output)
        constants = {tensor.name: _tensor(tensor) for tensor in graph.initializer}
        self.inputs = {one.name: _input(one) for one in graph.input if one.name not in constants}
        nodes = with_products(_without_constant_casts(graph.node, constants), constants, self.outputs)
        unknown = {node.operator for node in nodes} - OPERATORS.keys()
        if unknown:
            raise refuse(", ".join(sorted(unknown)), "is not supported in torch")
        nodes = merged(nodes, constants, self.outputs)
        self._nodes = [placed(node, device, dtype) if node.operator == "Linear" else node for node in nodes]
        self._last = _last_reads(self._nodes, self.outputs)
        read = {name for node in self._nodes for name in node.inputs} | set(self.outputs)
        self._constants = {name: value for name, value in constants.items() if name in read}
        self._copies: dict[str, Tensor] = {}  # constants on the device, for the steps that read them there

    @classmethod
    def read(cls, path: Path, device: torch.device, dtype: torch.dtype) -> "Program":
        """Read an ONNX file; the error for unsupported operators names them."""
        try:
            model = onnx.load(path)
        except Exception as error:  # the library's exceptions have no common base
            raise BundleError(f"{path}: not an ONNX graph: {error}") from error
        return cls(model, device, dtype)

    def plan(self, inputs: Mapping[str, Tensor]) -> tuple[ExecutionPlan, dict[str, Tensor]]:
        """Make a plan for inputs of these shapes by running the graph on them; also returns the outputs."""
        known, values, steps = dict(self._constants), dict(inputs), []
        moved: dict[str, Tensor] = {}
        for node, last in zip(self._nodes, self._last, strict=True):
            if node.operator == "Shape":
                known.update(_made(node, [known.get(name, values.get(name)) for name in node.inputs]))
            elif node.operator != "Linear" and all(name in known for name in node.inputs if name):
                known.update(_made(node, [known.get(name) for name in node.inputs]))
            else:
                step = self._step(node, last, known, moved)
                values.update(_made(node, [values[one] if isinstance(one, str) else one for one in step.inputs]))
                steps.append(step)
            for name in last:
                values.pop(name, None)
        given = {name: known[name].to(self.device) for name in self.outputs if name in known}
        return ExecutionPlan(tuple(steps), self.outputs, given), _singles({**values, **given}, self.outputs)

    def _step(
        self, node: GraphNode, last: tuple[str, ...], known: Mapping[str, Tensor], moved: dict[str, Tensor]
    ) -> Step:
        """Return the step for a node. moved: constants of this plan that are already on the device."""
        inputs: list[str | Tensor | None] = []
        for place, name in enumerate(node.inputs):
            on_host = OPERATORS[node.operator].reads_on_host(place)
            if not name:
                inputs.append(None)
            elif name not in known:
                if on_host:
                    raise refuse(
                        node.operator, "computes a shape that depends on values, not only on the shapes of the inputs"
                    )
                inputs.append(name)
            elif on_host:
                inputs.append(known[name])
            else:
                copies = self._copies if name in self._constants else moved
                if name not in copies:
                    copies[name] = known[name].to(self.device)
                inputs.append(copies[name])
        return Step(node, tuple(inputs), tuple(name for name in last if name not in known))


def _made(node: GraphNode, inputs: list[Tensor | None]) -> dict[str, Tensor]:
    """Return the outputs of an operator by name."""
    made = OPERATORS[node.operator].function(node.attributes, *inputs)
    return dict(zip(node.outputs, (made,) if isinstance(made, Tensor) else made, strict=False))


def _singles(values: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the values with these names, floating-point ones in float32."""
    found = {name: values[name] for name in names}
    return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}


def _last_reads(nodes: list[GraphNode], outputs: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return, for each node, the names that no later node reads."""
    last = {name: number for number, node in enumerate(nodes) for name in node.inputs if name}
    found: list[list[str]] = [[] for _ in nodes]
    for name, number in last.items():
        if name not in outputs:
            found[number].append(name)
    return [tuple(names) for names in found]


def _node(node: onnx.NodeProto) -> GraphNode:
    attributes: dict[str, Any] = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return GraphNode(node.op_type, tuple(node.input), tuple(node.output), attributes)


def _without_constant_casts(nodes: Iterable[onnx.NodeProto], constants: dict[str, Tensor]) -> list[GraphNode]:
    """Return the nodes of a graph, without casts of constants to float32; their results are added to the constants."""
    found = []
    for node in map(_node, nodes):
        if node.operator == "Cast" and node.inputs[0] in constants and node.attributes["to"] == onnx.TensorProto.FLOAT:
            constants[node.outputs[0]] = constants[node.inputs[0]].float()
        else:
            found.append(node)
    return found


def _tensor(tensor: onnx.TensorProto) -> Tensor:
    return torch.from_numpy(np.array(numpy_helper.to_array(tensor)))


def _input(found: onnx.ValueInfoProto) -> Input:
    kind = found.type.tensor_type
    dtype = torch.from_numpy(np.empty(0, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))).dtype
    return Input(dtype, tuple(side.dim_value or None for side in kind.shape.dim))
