"""The graph of an image student: faster operators, nearly the same results."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from transformers import ViTConfig, ViTModel

from sightline.arrays import Arrays
from sightline.bundle.engines import OnnxRuntime
from sightline.kernels.graphs import TorchGraph
from sightline.models.student import ImageStudent, StudentOutput, StudentShape
from sightline.onnx_export.exporter import trace
from sightline.onnx_export.faster_operators import use_faster_operators
from sightline.onnx_export.students import write_image_graph

PIXELS = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def student() -> ImageStudent:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = ViTConfig(**sizes, patch_size=8, image_size=32)
    return ImageStudent(ViTModel(config, add_pooling_layer=False), StudentShape(8, 4, 12)).eval()


@pytest.fixture(scope="module")
def traced(student: ImageStudent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph as torch's exporter writes it."""
    folder = tmp_path_factory.mktemp("traced")
    trace(student, "image", {"pixels": torch.zeros(2, 3, 32, 32)}, list(StudentOutput._fields), folder)
    return folder / "image.onnx"


def run(path: Path) -> Arrays:
    return OnnxRuntime(path, 1).run({"pixels": PIXELS})


def test_faster_operators_hardly_change_what_a_graph_returns(traced: Path, tmp_path: Path) -> None:
    model = onnx.load(traced)
    before = Counter(node.op_type for node in model.graph.node)
    use_faster_operators(model)
    onnx.checker.check_model(model)
    after = Counter(node.op_type for node in model.graph.node)
    assert after["InstanceNormalization"] == before["LayerNormalization"] > 0 == after["LayerNormalization"]
    assert after["Attention"] == before["Attention"] == 2
    assert after["Transpose"] == before["Transpose"] - 4 * 2  # one for the patches is left
    assert all(len(node.input) == 3 for node in model.graph.node if node.op_type == "Attention")
    faster = tmp_path / "faster.onnx"
    onnx.save(model, faster)
    expected, found = run(traced), run(faster)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-3)
    in_torch = TorchGraph.open(faster, "cpu").run({"pixels": PIXELS})
    for name, values in found.items():
        np.testing.assert_allclose(in_torch[name], values, atol=1e-4)


def test_the_written_graph_is_fast_and_close_to_the_student(student: ImageStudent, tmp_path: Path) -> None:
    path = write_image_graph(student, PIXELS, tmp_path)
    with torch.inference_mode():
        expected = student(torch.from_numpy(PIXELS)).embedding.numpy()
    assert (run(path)["embedding"] * expected).sum(-1).min() > 0.99
    assert "LayerNormalization" not in {node.op_type for node in onnx.load(path).graph.node}


def attention(mask: bool, perm: list[int]) -> onnx.ModelProto:
    """Attention with two heads over x [batch, 3, 4]; mask: the only value of its constant mask."""
    views = [
        node
        for side in "qkv"
        for node in (
            helper.make_node("Reshape", ["x", "split"], [f"{side}_split"]),
            helper.make_node("Transpose", [f"{side}_split"], [side], perm=perm),
        )
    ]
    nodes = [
        *views,
        helper.make_node("Attention", ["q", "k", "v", "mask"], ["read"]),
        helper.make_node("Transpose", ["read"], ["swapped"], perm=perm),
        helper.make_node("Reshape", ["swapped", "join"], ["y"]),
    ]
    shown = np.eye(3, dtype=np.bool_)[None, None] | mask
    constants = {"split": np.array([-1, 3, 2, 2]), "join": np.array([-1, 3, 4]), "mask": shown}
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, 4])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize(("hides", "inputs"), [(True, 4), (False, 3)])
def test_a_mask_that_hides_something_is_kept(hides: bool, inputs: int, tmp_path: Path) -> None:
    model, x = attention(not hides, [0, 2, 1, 3]), PIXELS[0, :, 0, :12].reshape(3, 3, 4)
    onnx.save(model, tmp_path / "before.onnx")
    use_faster_operators(model)
    onnx.save(model, tmp_path / "after.onnx")
    (node,) = model.graph.node
    assert len(node.input) == inputs
    before, after = (OnnxRuntime(tmp_path / f"{name}.onnx", 1).run({"x": x})["y"] for name in ("before", "after"))
    np.testing.assert_array_equal(after, before)


def test_attention_over_other_axes_is_left_as_it_is() -> None:
    model = attention(True, [0, 2, 3, 1])
    before = [node.op_type for node in model.graph.node]
    use_faster_operators(model)
    assert [node.op_type for node in model.graph.node] == before


def test_attention_whose_heads_are_also_an_output_is_left_as_it_is(tmp_path: Path) -> None:
    model = attention(True, [0, 2, 1, 3])
    model.graph.output.append(helper.make_tensor_value_info("swapped", TensorProto.FLOAT, ["batch", 3, 2, 2]))
    onnx.save(model, tmp_path / "before.onnx")
    use_faster_operators(model)
    onnx.save(model, tmp_path / "after.onnx")
    x = PIXELS[0, :, 0, :12].reshape(3, 3, 4)
    before, after = (OnnxRuntime(tmp_path / f"{name}.onnx", 1).run({"x": x}) for name in ("before", "after"))
    for name in ("y", "swapped"):
        np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.parametrize("split", [[-1, 3, 0, 2], [0, 3, -1, 2]])
def test_attention_with_an_unknown_number_of_heads_is_left_as_it_is(split: list[int]) -> None:
    model = attention(True, [0, 2, 1, 3])
    (shape,) = (tensor for tensor in model.graph.initializer if tensor.name == "split")
    shape.CopyFrom(numpy_helper.from_array(np.array(split), "split"))
    before = [node.op_type for node in model.graph.node]
    use_faster_operators(model)
    assert [node.op_type for node in model.graph.node] == before
