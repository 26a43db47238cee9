"""Products of whole numbers give what products of fractions gave, nearly; and always the same, in any company."""

import io

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from sightline.datasets import Record
from sightline.errors import DataError
from sightline.media import ImageBytes, Preprocess
from sightline.onnx_export.static_ranges import fix_ranges, sample_images

WIDTH, INNER = 16, 24
Floats = npt.NDArray[np.float32]
RNG = np.random.default_rng(0)
CONSTANTS = {
    "gain": RNG.uniform(0.5, 2, WIDTH).astype(np.float32),
    "shift": RNG.normal(size=WIDTH).astype(np.float32),
    "query": RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32),
    "key": RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32),
    "bias": RNG.normal(size=WIDTH).astype(np.float32),
    "inner": RNG.normal(size=(WIDTH, INNER)).astype(np.float32),
    "outer": RNG.normal(size=(INNER, WIDTH)).astype(np.float32),
}


def graph(*, shows: str = "") -> onnx.ModelProto:
    """A layer of a transformer without its attention: normalise, two products that read that, and a small network.

    shows: a value inside that is a second output.
    """
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["normal"], axis=-1, name="normalise"),
        helper.make_node("MatMul", ["normal", "query"], ["asked"], name="asks"),
        helper.make_node("Add", ["asked", "bias"], ["asked_more"], name="asks_more"),
        helper.make_node("MatMul", ["normal", "key"], ["answered"], name="answers"),
        helper.make_node("Sub", ["asked_more", "answered"], ["both"], name="meet"),
        helper.make_node("MatMul", ["both", "inner"], ["in"], name="goes_in"),
        helper.make_node("Relu", ["in"], ["on"], name="bends"),
        helper.make_node("MatMul", ["on", "outer"], ["y"], name="goes_out"),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", WIDTH])]
    if shows:
        outputs.append(helper.make_tensor_value_info(shows, TensorProto.FLOAT, ["batch", "rows", WIDTH]))
    made = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", WIDTH])],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in CONSTANTS.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def items(count: int, seed: int, loud: float = 50.0) -> Floats:
    """Items of five rows each; channel 3 is much louder than the others."""
    made = np.random.default_rng(seed).normal(size=(count, 5, WIDTH)).astype(np.float32)
    made[..., 3] *= loud
    return made


def run(model: onnx.ModelProto, x: Floats) -> list[Floats]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given: list[Floats] = session.run(None, {"x": x})
    return given


def fixed(model: onnx.ModelProto, leave: tuple[str, ...] = ()) -> onnx.ModelProto:
    fix_ranges(model, [{"x": item[None]} for item in items(64, seed=1)], leave)
    onnx.checker.check_model(model)
    return model


def kinds(model: onnx.ModelProto) -> dict[str, str]:
    return {node.name: node.op_type for node in model.graph.node}


def cosines(one: Floats, other: Floats) -> Floats:
    found: Floats = (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)
    return found


def test_whole_numbers_come_close_although_one_channel_is_loud() -> None:
    small = fixed(graph())
    products = {name: kind for name, kind in kinds(small).items() if name in ("asks", "answers", "goes_in", "goes_out")}
    assert set(products.values()) == {"MatMulIntegerToFloat"}
    x = items(32, seed=2)
    (right,), (near,) = run(graph(), x), run(small, x)
    assert cosines(right, near).mean() > 0.998


def test_an_item_is_the_same_in_any_company() -> None:
    small = fixed(graph())
    x = items(8, seed=3)
    x[5] *= 100  # loud company
    (together,) = run(small, x)
    for number, item in enumerate(x):
        np.testing.assert_array_equal(run(small, item[None])[0][0], together[number])


def test_a_normalisation_divides_by_itself_unless_somebody_else_reads_it() -> None:
    x = items(4, seed=4)
    assert "asks_alike_node" not in kinds(fixed(graph()))
    shown = fixed(graph(shows="normal"))
    assert kinds(shown)["asks_alike_node"] == "Mul"
    np.testing.assert_array_equal(run(shown, x)[1], run(graph(shows="normal"), x)[1])
    others = fixed(graph(), leave=("answers",))
    assert kinds(others)["answers"] == "MatMul"
    assert kinds(others)["asks_alike_node"] == "Mul"
    assert cosines(run(others, x)[0], run(graph(), x)[0]).mean() > 0.998


def test_values_that_two_products_read_are_quantised_once() -> None:
    made = list(kinds(fixed(graph())).values())
    assert made.count("QuantizeLinear") == 3
    assert "Add" not in made


def test_a_product_that_would_lose_too_much_is_left_alone() -> None:
    samples = items(64, seed=5, loud=1.0)
    samples[:, 0] *= 2000  # the first row of every item would take all the steps from the others
    model = graph()
    del model.graph.node[0]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == "normal":
                node.input[place] = "x"
    fix_ranges(model, [{"x": item[None]} for item in samples])
    assert kinds(model)["asks"] == "MatMul"


def test_constants_that_nobody_reads_any_more_are_gone() -> None:
    model = fixed(graph())
    names = {tensor.name for tensor in model.graph.initializer}
    assert names.isdisjoint({"query", "key", "inner", "outer", "gain", "shift"})
    read = {name for node in model.graph.node for name in node.input}
    assert names <= read


def picture(number: int) -> Record:
    into = io.BytesIO()
    Image.new("RGB", (8, 8), (number * 20, 0, 0)).save(into, "PNG")
    return Record(str(number), ImageBytes(str(number), into.getvalue()), {"en": ("a",)})


def test_pictures_of_a_data_set_are_spread_over_it_and_unreadable_ones_passed_over() -> None:
    preprocess = Preprocess(size=8, resize="squash", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    records = [picture(number) for number in range(12)]
    spread = sample_images(records, preprocess, 5)
    assert spread.shape == (5, 3, 8, 8)
    assert [round(float(one[0, 0, 0]) * 255 / 20) for one in spread] == [0, 2, 4, 6, 8]
    broken = Record("x", ImageBytes("x", b"no picture"), {"en": ("a",)})
    assert len(sample_images([records[0], broken, records[1]], preprocess)) == 2
    for none in ([], [broken]):
        with pytest.raises(DataError, match="no readable image"):
            sample_images(none, preprocess)
