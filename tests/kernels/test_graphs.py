"""Torch runs the graphs of bundles as ONNX Runtime does, operator by operator and as a whole."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from kernels.agreeing import assert_graphs_agree, inputs_of
from sightline.bundle.engines import Engine, OnnxRuntime
from sightline.errors import BundleError, UnknownOperatorError
from sightline.kernels import graphs, products
from sightline.kernels.graphs import TorchGraph
from sightline.kernels.program import Program

Array = npt.NDArray[Any]
CHANCE = np.random.default_rng(0)
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> Array:
    return CHANCE.standard_normal(shape).astype(np.float32)


def longs(*numbers: Any) -> Array:
    return np.array(numbers, dtype=np.int64)


def bools(*shape: int) -> Array:
    return CHANCE.random(shape) < 0.6


def written(
    path: Path,
    nodes: list[onnx.NodeProto],
    given: dict[str, Array],
    constants: dict[str, Array],
    outputs: tuple[str, ...] = ("y",),
) -> Path:
    """A graph of these nodes, whose inputs may have any length along the first axis."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None, *array.shape[1:]])
        for name, array in given.items()
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    named = [onnx.ValueInfoProto(name=name) for name in outputs]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph(nodes, "graph", inputs, named, tensors)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def node(operator: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, list(inputs), list(outputs), **attributes)


def both(path: Path, given: dict[str, Array]) -> tuple[list[Array], list[Array]]:
    """What both engines make of inputs."""
    program = Program.read(path, torch.device("cpu"), torch.float32)
    found, expected = TorchGraph(program).run(given), OnnxRuntime(path, 1).run(given)
    return [found[name] for name in expected], list(expected.values())


X, TALL = floats(3, 4, 6), floats(5, 3, 8)
PICTURE = {"strides": [2, 2], "pads": [1, 1, 1, 1], "kernel_shape": [2, 2]}
CONVOLVED = {**PICTURE, "dilations": [1, 1], "group": 1, "auto_pad": "NOTSET"}
POOLED = {**PICTURE, "auto_pad": "NOTSET", "count_include_pad": 1}
HEADS = {"q": floats(2, 3, 4, 8), "k": floats(2, 3, 5, 8), "v": floats(2, 3, 5, 8)}
GRU = {"w": floats(2, 12, 8), "r": floats(2, 12, 4), "b": floats(2, 24)}

CASES: dict[str, tuple[onnx.NodeProto, dict[str, Array], dict[str, Array]]] = {
    "add": (node("Add", "x", "c"), {"x": X}, {"c": floats(6)}),
    "and": (node("And", "x", "z"), {"x": bools(3, 4), "z": bools(3, 4)}, {}),
    "argmax": (node("ArgMax", "x", axis=1, keepdims=0), {"x": X}, {}),
    "attention": (node("Attention", "q", "k", "v", scale=0.3), HEADS, {}),
    "attention, hiding": (
        node("Attention", "q", "k", "v", "m"),
        {**HEADS, "m": bools(2, 1, 4, 5) | np.eye(4, 5, dtype=bool)},
        {},
    ),
    "attention, adding": (node("Attention", "q", "k", "v", "m"), {**HEADS, "m": floats(2, 1, 4, 5)}, {}),
    "attention, heads together": (
        node("Attention", "q", "k", "v", q_num_heads=2, kv_num_heads=2, scale=0.3),
        {"q": floats(2, 4, 6), "k": floats(2, 5, 6), "v": floats(2, 5, 6)},
        {},
    ),
    "average": (node("AveragePool", "x", **POOLED), {"x": floats(2, 3, 6, 6)}, {}),
    "cast": (node("Cast", "x", to=TensorProto.INT64), {"x": 3 * X}, {}),
    "clip below": (node("Clip", "x", "c"), {"x": X}, {"c": np.float32(0.1)}),
    "clip above": (node("Clip", "x", "", "c"), {"x": X}, {"c": np.float32(0.1)}),
    "concat": (node("Concat", "x", "z", axis=-1), {"x": X, "z": floats(3, 4, 2)}, {}),
    "conv": (
        node("Conv", "x", "w", "b", **CONVOLVED),
        {"x": floats(2, 3, 6, 6)},
        {"w": floats(4, 3, 2, 2), "b": floats(4)},
    ),
    "cumsum": (node("CumSum", "x", "c"), {"x": longs([1, 2, 3], [4, 5, 6])}, {"c": longs(1)}),
    "dequantize": (
        node("DequantizeLinear", "x", "s", "z"),
        {"x": longs(1, 9, 200).astype(np.uint8)},
        {"s": np.float32(0.5), "z": np.uint8(7)},
    ),
    "div": (node("Div", "x", "c"), {"x": X}, {"c": floats(6)}),
    "div whole": (node("Div", "x", "c"), {"x": longs(-7, 7, 8)}, {"c": longs(2)}),
    "expand": (node("Expand", "x", "c"), {"x": floats(3, 1)}, {"c": longs(2, 1, 5)}),
    "gather": (node("Gather", "x", "c", axis=1), {"x": X}, {"c": longs([0, -1], [2, 2])}),
    "gather elements": (node("GatherElements", "x", "c", axis=1), {"x": floats(2, 4)}, {"c": longs([3, -4], [0, 1])}),
    "gather nd": (node("GatherND", "x", "c"), {"x": X}, {"c": longs([[0, 1], [2, 3]])}),
    "gelu": (node("Gelu", "x", approximate="tanh"), {"x": X}, {}),
    "gemm": (node("Gemm", "x", "w", "b", transB=1), {"x": X[0]}, {"w": floats(5, 6), "b": floats(5)}),
    "gemm, not turned": (node("Gemm", "x", "w"), {"x": X[0]}, {"w": floats(6, 5)}),
    "gru": (
        node(
            "GRU",
            "x",
            "w",
            "r",
            "b",
            outputs=("y", "h"),
            hidden_size=4,
            direction="bidirectional",
            linear_before_reset=1,
        ),
        {"x": TALL},
        GRU,
    ),
    "gru, lengths": (
        node(
            "GRU",
            "x",
            "w",
            "r",
            "b",
            "n",
            outputs=("y", "h"),
            hidden_size=4,
            direction="bidirectional",
            linear_before_reset=1,
        ),
        {"x": TALL, "n": np.array([5, 1, 3], np.int32)},
        GRU,
    ),
    "instance normalization": (
        node("InstanceNormalization", "x", "s", "b", epsilon=1e-3),
        {"x": X},
        {"s": floats(4), "b": floats(4)},
    ),
    "layer normalization": (
        node("LayerNormalization", "x", "s", "b", epsilon=1e-3),
        {"x": X},
        {"s": floats(6), "b": floats(6)},
    ),
    "matmul": (node("MatMul", "x", "z"), {"x": X, "z": floats(3, 6, 5)}, {}),
    "matmul, constant": (node("MatMul", "x", "w"), {"x": X}, {"w": floats(6, 5)}),
    "matmul, constant stack": (node("MatMul", "x", "w"), {"x": X}, {"w": floats(3, 6, 5)}),
    "range": (node("Range", "a", "b", "c"), {}, {"a": longs(2)[0], "b": longs(9)[0], "c": longs(3)[0]}),
    "reduce l2": (node("ReduceL2", "x", "c"), {"x": X}, {"c": longs(-1)}),
    "reduce max": (node("ReduceMax", "x", "c", keepdims=0), {"x": X}, {"c": longs(1)}),
    "reduce sum": (node("ReduceSum", "x", "c"), {"x": X}, {"c": longs(0, 2)}),
    "reduce sum of all": (node("ReduceSum", "x", keepdims=0), {"x": longs(1, 2, 3)}, {}),
    "reshape": (node("Reshape", "x", "c"), {"x": X}, {"c": longs(0, -1, 3)}),
    "shape": (node("Shape", "x", start=1), {"x": X}, {}),
    "slice": (
        node("Slice", "x", "a", "b", "c", "d"),
        {"x": X},
        {"a": longs(1, -3), "b": longs(2**62, -1), "c": longs(1, 2), "d": longs(2, 1)},
    ),
    "softmax": (node("Softmax", "x", axis=1), {"x": X}, {}),
    "split": (node("Split", "x", outputs=("y", "h"), axis=1, num_outputs=2), {"x": X}, {}),
    "split to sizes": (node("Split", "x", "c", outputs=("y", "h"), axis=1), {"x": X}, {"c": longs(3, 1)}),
    "squeeze": (node("Squeeze", "x", "c"), {"x": X[:, :1]}, {"c": longs(1)}),
    "squeeze all": (node("Squeeze", "x"), {"x": X[:, :1]}, {}),
    "transpose": (node("Transpose", "x", perm=[2, 0, 1]), {"x": X}, {}),
    "transpose all": (node("Transpose", "x"), {"x": X}, {}),
    "unsqueeze": (node("Unsqueeze", "x", "c"), {"x": X}, {"c": longs(-1, 1)}),
    "where": (node("Where", "m", "x", "c"), {"m": bools(3, 4, 6), "x": X}, {"c": np.float32(np.finfo(np.float32).min)}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_does_what_it_does_under_onnx_runtime(name: str, tmp_path: Path) -> None:
    one, given, constants = CASES[name]
    given = {name: np.ascontiguousarray(array) for name, array in given.items()}
    path = written(tmp_path / "graph.onnx", [one], given, constants, tuple(one.output))
    for found, expected in zip(*both(path, given), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_whole_numbers_in_blocks_become_what_they_stand_for(bits: int, has_zeros: bool, tmp_path: Path) -> None:
    """Of 40 rows in blocks of 16: the third is not full, and of zeros in four bits the last byte is not either."""
    rows, columns, block, blocks = 40, 5, 16, 3
    constants = {
        "w": CHANCE.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": np.abs(floats(columns, blocks)),
        "z": CHANCE.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8),
    }
    read = ["x", "w", "s", *(["z"] if has_zeros else [])]
    sizes = {"K": rows, "N": columns, "bits": bits, "block_size": block}
    one = helper.make_node("MatMulNBits", read, ["y"], domain=MICROSOFT, **sizes)
    given = {"x": floats(3, rows)}
    path = written(tmp_path / "graph.onnx", [one], given, {name: constants[name] for name in read[1:]})
    (found,), (expected,) = both(path, given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_packed_table_become_what_they_stand_for(bits: int, tmp_path: Path) -> None:
    rows, blocks, block = 7, 3, 16
    constants = {
        "w": CHANCE.integers(0, 256, (rows, blocks * block * bits // 8)).astype(np.uint8),
        "s": floats(rows, blocks).astype(np.float16),
    }
    sizes = {"bits": bits, "block_size": block}
    one = helper.make_node("GatherBlockQuantized", ["w", "x", "s"], ["y"], domain=MICROSOFT, **sizes)
    given = {"x": longs([0, 6], [-7, 3], [2, -1])}
    path = written(tmp_path / "graph.onnx", [one, node("Cast", "y", outputs=("z",), to=1)], given, constants, ("z",))
    (found,), (expected,) = both(path, given)
    assert found.shape == (3, 2, blocks * block)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_what_is_multiplied_is_not_quantize_queries(tmp_path: Path) -> None:
    """ONNX Runtime rounds it to one of 256 steps; a product in float32 of the same matrix is what comes out here."""
    matrix, steps, values = CHANCE.integers(-99, 99, (8, 4)).astype(np.int8), np.abs(floats(4)), floats(3, 8)
    constants = {"m": matrix, "t": steps, "s": np.float32(0.02), "z": np.uint8(128), "b": floats(4)}
    nodes = [
        node("QuantizeLinear", "x", "s", "z", outputs=("q",)),
        helper.make_node("MatMulIntegerToFloat", ["q", "m", "s", "t", "z", "", "b"], ["y"], domain=MICROSOFT),
    ]
    path = written(tmp_path / "graph.onnx", nodes, {"x": values}, constants)
    found = TorchGraph.open(path, "cpu").run({"x": values})["y"]
    np.testing.assert_allclose(found, values @ (matrix * steps) + constants["b"], rtol=1e-4, atol=1e-3)


def test_a_sum_after_a_product_is_taken_for_its_bias_only_where_it_is_one(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x", "w", outputs=("p",)),
        node("Add", "p", "b", outputs=("y",)),
        node("MatMul", "x", "w", outputs=("q",)),
        node("Add", "c", "q", outputs=("z",)),
        node("MatMul", "x", "w", outputs=("r",)),
        node("Add", "r", "r", outputs=("u",)),
        node("MatMul", "x", "w", outputs=("s",)),
        node("Add", "s", "b", outputs=("v",)),
        node("Sub", "v", "s", outputs=("t",)),
    ]
    constants = {"w": floats(6, 5), "b": floats(5), "c": floats(4, 5)}
    path = written(tmp_path / "graph.onnx", nodes, {"x": X}, constants, ("y", "z", "u", "t"))
    for found, expected in zip(*both(path, {"x": X}), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    merged = products.with_products(
        [products.GraphNode(one.op_type, tuple(one.input), tuple(one.output), {}) for one in nodes],
        {name: torch.from_numpy(array) for name, array in constants.items()},
        ("y", "z", "u", "t"),
    )
    assert [one.operator for one in merged] == ["Linear", *["Linear", "Add"] * 3, "Sub"]


@pytest.mark.parametrize("engine", [lambda path: TorchGraph.open(path, "cpu"), lambda path: OnnxRuntime(path, 1)])
def test_states_in_half_precision_will_do(engine: Callable[[Path], Engine], tiny_bundle: Path) -> None:
    opened, inputs = engine(tiny_bundle / "match.onnx"), inputs_of(tiny_bundle)["match"]
    halves = {name: of.astype(np.float16) if of.dtype == np.float32 else of for name, of in inputs.items()}
    singles = {name: of.astype(np.float32) if of.dtype == np.float16 else of for name, of in halves.items()}
    assert sum(halves[name].dtype == np.float16 for name in inputs) == 2
    np.testing.assert_array_equal(opened.run(halves)["logits"], opened.run(singles)["logits"])


def test_an_operator_that_torch_was_not_taught_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.onnx", [node("Erf", "x")], {"x": X}, {})
    with pytest.raises(UnknownOperatorError, match="Erf"):
        TorchGraph.open(path, "cpu")


REFUSED: dict[str, tuple[list[onnx.NodeProto], dict[str, Array], dict[str, Array]]] = {
    "depends on": ([node("Reshape", "x", "n")], {"x": X, "n": longs(6, 12)}, {}),
    "reads quantised": (
        [node("QuantizeLinear", "x", "s", "z", outputs=("q",)), node("DequantizeLinear", "q", "s", "z")],
        {"x": X},
        {"s": np.float32(1), "z": np.uint8(0)},
    ),
    "has a negative step": (
        [node("Slice", "x", "a", "b", "c", "d")],
        {"x": X},
        {"a": longs(3), "b": longs(0), "c": longs(1), "d": longs(-1)},
    ),
    "more than one scale": (
        [node("DequantizeLinear", "x", "s", axis=0)],
        {"x": longs(1, 2).astype(np.uint8)},
        {"s": floats(2)},
    ),
    "has zero points": (
        [
            helper.make_node(
                "GatherBlockQuantized", ["w", "x", "s", "z"], ["y"], domain=MICROSOFT, bits=8, block_size=16
            )
        ],
        {"x": longs(0, 1)},
        {"w": np.ones((2, 16), np.uint8), "s": floats(2, 1), "z": np.ones((2, 1), np.uint8)},
    ),
    "has 2 bits per number": (
        [helper.make_node("GatherBlockQuantized", ["w", "x", "s"], ["y"], domain=MICROSOFT, bits=2, block_size=16)],
        {"x": longs(0, 1)},
        {"w": np.ones((2, 4), np.uint8), "s": floats(2, 1)},
    ),
    "type or axes are not supported": (
        [
            helper.make_node(
                "GatherBlockQuantized", ["w", "x", "s"], ["y"], domain=MICROSOFT, bits=8, block_size=16, gather_axis=1
            )
        ],
        {"x": longs(0, 1)},
        {"w": np.ones((2, 16), np.uint8), "s": floats(2, 1)},
    ),
    "MatMulNBits has 2 bits per number": (
        [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain=MICROSOFT, K=16, N=2, bits=2, block_size=16)],
        {"x": floats(3, 16)},
        {"w": np.ones((2, 1, 4), np.uint8), "s": floats(2, 1)},
    ),
    "has reordered rows": (
        [
            helper.make_node(
                "MatMulNBits", ["x", "w", "s", "", "g"], ["y"], domain=MICROSOFT, K=16, N=2, bits=8, block_size=16
            )
        ],
        {"x": floats(3, 16)},
        {"w": np.ones((2, 1, 16), np.uint8), "s": floats(2, 1), "g": np.zeros(16, np.int32)},
    ),
    "blocks of 32": (
        [helper.make_node("GatherBlockQuantized", ["w", "x", "s"], ["y"], domain=MICROSOFT, bits=8, block_size=32)],
        {"x": longs(0, 1)},
        {"w": np.ones((2, 48), np.uint8), "s": floats(2, 2)},
    ),
    "batch dimensions": ([node("GatherND", "x", "c", batch_dims=1)], {"x": X}, {"c": longs([[1]], [[0]], [[2]])}),
}


@pytest.mark.parametrize("says", REFUSED)
def test_a_use_that_torch_was_not_taught_is_refused_when_the_graph_is_opened(says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "graph.onnx", *REFUSED[says])
    with pytest.raises(UnknownOperatorError, match=says):
        TorchGraph.open(path, "cpu")


def test_a_file_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.onnx").write_bytes(b"not a graph")
    with pytest.raises(BundleError, match="not an ONNX graph"):
        TorchGraph.open(tmp_path / "graph.onnx", "cpu")


def test_a_whole_bundle_gives_the_same(tiny_bundle: Path) -> None:
    assert_graphs_agree(tiny_bundle)


def test_in_half_precision_it_gives_nearly_the_same(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, with every product in float16: the types of what meets fit together, and outputs are float32."""
    monkeypatch.setattr(products, "_SCORES", 0)
    for graph, inputs in inputs_of(tiny_bundle).items():
        path = tiny_bundle / f"{graph}.onnx"
        program = Program.read(path, torch.device("cpu"), torch.float16)
        found, expected = TorchGraph(program).run(inputs), OnnxRuntime(path, 1).run(inputs)
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_allclose(found[name], values, atol=1e-2)
            assert name not in ("embedding", "logits") or np.abs(found[name] - values).max() > 1e-5


def test_shapes_are_forgotten_in_the_order_in_which_they_were_last_asked_for(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "_SHAPES", 2)
    opened = TorchGraph.open(tiny_bundle / "text.onnx", "cpu")
    expected = OnnxRuntime(tiny_bundle / "text.onnx", 1)
    for length in (3, 4, 3, 5):
        given = {"ids": np.full((2, length), 5), "mask": np.ones((2, length), dtype=np.bool_)}
        np.testing.assert_allclose(opened.run(given)["embedding"], expected.run(given)["embedding"], atol=1e-5)
    assert [{name: shape for name, shape, *_ in shapes}["ids"] for shapes in opened._plans] == [(2, 3), (2, 5)]


def test_several_threads_may_use_it(tiny_bundle: Path) -> None:
    opened, expected = TorchGraph.open(tiny_bundle / "text.onnx", "cpu"), OnnxRuntime(tiny_bundle / "text.onnx", 1)
    batches = [{"ids": np.full((1 + n % 3, 3), 4 + n), "mask": np.ones((1 + n % 3, 3), np.bool_)} for n in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for given, found in zip(batches, pool.map(opened.run, batches), strict=True):
            np.testing.assert_allclose(found["embedding"], expected.run(given)["embedding"], atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("of", [lambda array: array, lambda array: np.repeat(array, 40, 0)], ids=["captured", "large"])
def test_on_a_gpu_it_gives_nearly_the_same_at_every_run(tiny_bundle: Path, of: Callable[[Array], Array]) -> None:
    """The first run of a shape plans, the second captures if it is small, the third runs what was captured."""
    for graph, inputs in inputs_of(tiny_bundle).items():
        path = tiny_bundle / f"{graph}.onnx"
        opened, expected = TorchGraph.open(path, "cuda"), OnnxRuntime(path, 1)
        for given in (inputs, inputs, {name: array[::-1] for name, array in inputs.items()}):
            several = {name: of(array) for name, array in given.items()}
            found = opened.run(several)
            for name, values in expected.run({name: np.ascontiguousarray(a) for name, a in several.items()}).items():
                np.testing.assert_allclose(found[name], values, atol=2e-2)
