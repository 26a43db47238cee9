"""Tables and products in four bits a number give nearly what they gave, and round better where samples are known."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tiny
from kernels.agreeing import assert_graphs_agree
from sightline.bundle import Bundle
from sightline.datasets import read_all
from sightline.models.retriever import Tokens
from sightline.models.torch_model import TorchModel
from sightline.onnx_export.exporter import export
from sightline.onnx_export.four_bits import BLOCK, shrink_products, shrink_tables
from sightline.onnx_export.quantize import halve
from sightline.onnx_export.static_ranges import sample_images
from training import shapes

Floats = npt.NDArray[np.float32]
RNG = np.random.default_rng(0)
WORDS, WIDTH = 50, 2 * BLOCK


def model(
    nodes: list[onnx.NodeProto], constants: dict[str, Floats], given: int, wide: int | None = None
) -> onnx.ModelProto:
    """A graph that reads x, of this ONNX type and width, and makes y."""
    shape = ["batch"] if wide is None else ["batch", wide]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    inputs, outputs = [helper.make_tensor_value_info("x", given, shape)], [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(graph: onnx.ModelProto, x: npt.NDArray[np.generic]) -> Floats:
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Floats = session.run(None, {"x": x})[0]
    return found


def lookups(width: int = WIDTH) -> onnx.ModelProto:
    """Each word's row and that of the word after it, from one table, added."""
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["row"], name="row"),
        helper.make_node("Add", ["x", "one"], ["next"], name="count"),
        helper.make_node("Gather", ["table", "next"], ["next_row"], name="next_row"),
        helper.make_node("Add", ["row", "next_row"], ["y"], name="both"),
    ]
    table = RNG.standard_normal((WORDS, width)).astype(np.float32)
    table[3, :BLOCK] = 0
    return model(nodes, {"table": table, "one": np.array(1)}, TensorProto.INT64)  # type: ignore[dict-item]


def kinds(graph: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in graph.graph.node]


def test_a_table_takes_an_eighth_and_gives_nearly_the_same_rows() -> None:
    graph, words = lookups(), np.array([0, 2, 3, 48, -50])
    right, before = run(graph, words), graph.ByteSize()
    shrink_tables(graph, large=WORDS * WIDTH)
    assert kinds(graph).count("GatherBlockQuantized") == 2
    assert sum(tensor.name.startswith("table") for tensor in graph.graph.initializer) == 2, "packed once, and scales"
    assert before - graph.ByteSize() > 0.7 * WORDS * WIDTH * 4
    found = run(graph, words)
    assert np.linalg.norm(found - right) < 0.1 * np.linalg.norm(right)
    zeros = run(graph, np.array([3]))[0, :BLOCK] - run(graph, np.array([4]))[0, :BLOCK]
    assert np.isfinite(zeros).all()


@pytest.mark.parametrize("why", ["small", "width", "read by others"])
def test_other_tables_stay_as_they_are(why: str) -> None:
    graph = lookups(WIDTH + 1 if why == "width" else WIDTH)
    if why == "read by others":
        graph.graph.node.append(helper.make_node("Shape", ["table"], ["shape"], name="shape"))
    before = graph.SerializeToString()
    shrink_tables(graph, large=WORDS * WIDTH + (why == "small"))
    kept = [tensor for tensor in graph.graph.initializer if tensor.name == "table"]
    assert len(kept) == 1
    assert kept[0].data_type == TensorProto.FLOAT
    assert kinds(graph) == kinds(onnx.load_from_string(before))


@pytest.mark.parametrize("inputs", [BLOCK, 2 * BLOCK + 8])
def test_samples_make_products_of_four_bits_more_precise(inputs: int) -> None:
    """The inputs depend on each other, as those inside a network do: all are mixtures of six."""
    matrix = RNG.standard_normal((inputs, 48)).astype(np.float32)
    mixing = RNG.standard_normal((6, inputs)).astype(np.float32)

    def values(count: int) -> Floats:
        mixed = RNG.standard_normal((count, 6)) @ mixing + 0.1 * RNG.standard_normal((count, inputs))
        return mixed.astype(np.float32)

    def shrunk(samples: Floats) -> onnx.ModelProto:
        graph = model([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"w": matrix}, 1, inputs)
        shrink_products(graph, ["product"], [{"x": sample[None]} for sample in samples])
        assert kinds(graph) == ["MatMulNBits"]
        assert all(tensor.name != "w" for tensor in graph.graph.initializer)
        return graph

    seen, new = values(200), values(100)
    right = new @ matrix
    nearest, informed = (
        np.linalg.norm(run(shrunk(samples), new) - right) / np.linalg.norm(right) for samples in (seen[:0], seen)
    )
    assert nearest < 0.15
    assert informed < 0.6 * nearest


@pytest.mark.usefixtures("traced")
def test_captions_held_out_round_the_text_tower(tmp_path: Path) -> None:
    held_out = read_all([shapes.write(tmp_path / "held-out", shapes.cards(seed=5))])
    retriever, tokenizer = tiny.retriever(tiny.DUAL), tiny.tokenizer()
    texts = ["two red circle on the left", "a small dog with the ball", "cat", "blue square above the green triangle"]
    tokens = tokenizer(texts)
    with torch.inference_mode():
        right = retriever.encode_texts(Tokens(torch.from_numpy(tokens.ids), torch.from_numpy(tokens.mask))).embedding
    losses = []
    for records in (None, held_out):
        out = tmp_path / "bundle"
        export(retriever, tokenizer, out, name="b", precision="int8", four_bits=r"text\.encoder", held_out=records)
        losses.append(1 - (Bundle.open(out).encode_texts(texts).embedding * right.numpy()).sum(1).mean())
    assert 0 < losses[1] < losses[0] < 0.05
    assert_graphs_agree(out, tolerance=0.05)


@pytest.mark.usefixtures("traced")
def test_pairs_held_out_round_the_matcher(tmp_path: Path) -> None:
    held_out = read_all([shapes.write(tmp_path / "held-out", shapes.cards(seed=5))])
    retriever, tokenizer = tiny.retriever(tiny.DUAL), tiny.tokenizer()
    pixels = sample_images(held_out, tiny.PREPROCESS)
    model = TorchModel(retriever, tokenizer, "right")
    texts = model.encode_texts([record.captions["en"][0] for record in held_out[: len(pixels)]])
    images = model.encode_images(pixels[: len(texts.embedding)])
    pairs = texts.states, texts.mask, images.states, images.mask
    right, losses = model.match(*pairs), []  # type: ignore[arg-type]
    for some in (None, pixels):
        export(
            *(retriever, tokenizer, tmp_path / "bundle"),
            name="b",
            precision="int8",
            four_bits="matcher|text",
            images=some,
            held_out=held_out,
        )
        losses.append(np.abs(Bundle.open(tmp_path / "bundle").match(*pairs) - right).mean())  # type: ignore[arg-type]
    assert 0 < losses[1] < losses[0]


def test_scales_take_two_bytes_and_graphs_give_the_same() -> None:
    matrix = RNG.standard_normal((2 * BLOCK, 2048)).astype(np.float32)
    graph = model([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"w": matrix}, 1, 2 * BLOCK)
    shrink_products(graph, ["product"])
    x = RNG.standard_normal((3, 2 * BLOCK)).astype(np.float32)
    before, size = run(graph, x), graph.ByteSize()
    halve(graph)
    assert kinds(graph) == ["Cast", "MatMulNBits"]
    assert size - graph.ByteSize() > 0.9 * 2048 * 2 * 2
    assert np.array_equal(run(graph, x), before)
