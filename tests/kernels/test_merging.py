"""A graph with fewer steps gives the same numbers, and where something else reads a part, that part stays."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from kernels.test_graphs import X, bools, both, floats, node, written
from sightline.kernels.program import Program

UNIT = (
    node("MatMul", "x", "v", outputs=("product",)),
    node("Add", "product", "b", outputs=("wide",)),
    node("Mul", "wide", "c", outputs=("scaled",)),
    node("Sigmoid", "scaled", outputs=("share",)),
    node("Mul", "wide", "share", outputs=("unit",)),
)
NARROW = node("MatMul", "unit", "w")
BESIDE, AFTER = (node("Relu", read, outputs=("z",)) for read in ("wide", "unit"))
AGAIN = (
    node("MatMul", "unit", "v2", outputs=("wide2",)),
    node("Mul", "wide2", "c", outputs=("scaled2",)),
    node("Sigmoid", "scaled2", outputs=("share2",)),
    node("Mul", "wide2", "share2", outputs=("unit2",)),
)
WEIGHTS = {"v": floats(6, 70), "b": floats(70), "v2": floats(70, 70), "w": floats(70, 70), "c": np.float32(1.702)}


def steps_of(path: Path) -> Counter[str]:
    program = Program.read(path, torch.device("cpu"), torch.float32)
    plan, _ = program.plan({name: one.example(2, program.device) for name, one in program.inputs.items()})
    return Counter(step.node.operator for step in plan.steps)


@pytest.mark.parametrize(
    ("nodes", "outputs", "steps"),
    [
        ([*UNIT, NARROW], ("y",), {"Linear": 2, "Silu": 1}),
        ([*UNIT, *AGAIN, node("MatMul", "unit2", "w")], ("y",), {"Linear": 3, "Silu": 2}),
        ([*UNIT, NARROW], ("y", "unit"), {"Linear": 2, "Mul": 2, "Sigmoid": 1}),
        ([*UNIT, NARROW], ("y", "wide"), {"Linear": 2, "Mul": 2, "Sigmoid": 1}),
        ([*UNIT, NARROW, AFTER], ("y", "z"), {"Linear": 2, "Mul": 2, "Sigmoid": 1, "Relu": 1}),
        ([*UNIT, NARROW, BESIDE], ("y", "z"), {"Linear": 2, "Mul": 2, "Sigmoid": 1, "Relu": 1}),
    ],
    ids=[
        "between products",
        "twice",
        "read outside",
        "its product read outside",
        "before another step",
        "beside another step",
    ],
)
def test_a_sigmoid_unit_is_one_step_where_nothing_else_reads_its_parts(
    nodes: list[onnx.NodeProto], outputs: tuple[str, ...], steps: dict[str, int], tmp_path: Path
) -> None:
    path = written(tmp_path / "graph.onnx", nodes, {"x": X}, WEIGHTS, outputs)
    for found, expected in zip(*both(path, {"x": X}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert steps_of(path) == steps


def test_products_of_the_same_are_one_but_for_scores_and_those_without_a_bias(tmp_path: Path) -> None:
    nodes = [
        node("Gemm", "x", "v", "b", outputs=("y",)),
        node("Gemm", "x", "v2", "b2", outputs=("z",)),
        node("MatMul", "x", "v", outputs=("u",)),
        node("Gemm", "x", "s", "c", outputs=("t",)),
        node("MatMul", "z", "w", outputs=("r",)),
    ]
    constants = {"v": floats(6, 70), "v2": floats(6, 80), "b": floats(70), "b2": floats(80)}
    constants |= {"s": floats(6, 3), "c": floats(3), "w": floats(80, 64)}
    path = written(tmp_path / "graph.onnx", nodes, {"x": X[0]}, constants, ("y", "z", "u", "t", "r"))
    for found, expected in zip(*both(path, {"x": X[0]}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert steps_of(path) == {"Linear": 4}


@pytest.mark.parametrize("length", [5, 8])
@pytest.mark.parametrize("hides", [True, False], ids=["hiding", "adding"])
def test_a_mask_of_several_layers_is_prepared_once(length: int, hides: bool, tmp_path: Path) -> None:
    given = {"x": floats(2, 3, 4, 8), "k": floats(2, 3, length, 8)}
    given["m"] = bools(2, 1, 4, length) | np.eye(4, length, dtype=bool) if hides else floats(2, 1, 4, length)
    nodes = [
        node("Attention", "x", "k", "k", "m", outputs=("h",)),
        node("Attention", "h", "k", "k", "m"),
    ]
    path = written(tmp_path / "graph.onnx", nodes, given, {})
    (found,), (expected,) = both(path, given)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert steps_of(path) == {"Hiding": 1, "Attention": 2}
