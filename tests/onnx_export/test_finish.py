import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tiny
from sightline.bundle import Bundle
from sightline.bundle.relevance_formula import PairRelevance
from sightline.datasets import read_all
from sightline.errors import ModelError
from sightline.evaluation import evaluate
from sightline.onnx_export.calibrate import finish
from sightline.onnx_export.exporter import export
from sightline.onnx_export.quantize import halve
from training import shapes


def test_a_finished_bundle_has_a_fusion_and_a_relevance(tiny_bundle: Path, tmp_path: Path) -> None:
    records = read_all([shapes.write(tmp_path / "held-out", shapes.cards(seed=5))])
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    spec = finish(folder, records, trained_on=["a red square on black"] * 4)
    reopened = Bundle.open(folder)
    assert reopened.spec == spec
    assert spec.defaults.fusion == "logit_add"
    assert isinstance(spec.relevance, PairRelevance)
    assert reopened.relevance == spec.relevance
    assert spec.relevance.error["sentence"] < 0.5
    assert list(reopened.words) == ["a", "black", "on", "red", "square"]
    chosen, alone = (
        evaluate(reopened, records, rerank=20, fusion="logit_add", weight=weight)
        for weight in (spec.defaults.weight, 0.0)
    )
    assert chosen.r_sum >= alone.r_sum, "on the data it was chosen on, no other weight is better"


@pytest.mark.usefixtures("traced")
def test_modules_named_by_a_pattern_take_four_bits(tmp_path: Path) -> None:
    model, tokenizer = tiny.retriever(tiny.DUAL), tiny.tokenizer()
    sizes, embeddings = [], []
    pixels = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    for pattern in ("", r"mlp\.fc[12]"):
        export(model, tokenizer, tmp_path / "b", name="b", precision="int8", four_bits=pattern)
        sizes.append((tmp_path / "b" / "image.onnx").stat().st_size)
        embeddings.append(Bundle.open(tmp_path / "b").encode_images(pixels).embedding)
    assert sizes[1] < sizes[0]
    cosines = (embeddings[0] * embeddings[1]).sum(1)
    assert 0.9 < cosines.min() < 1 - 1e-6


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("pattern", "precision", "message"),
    [
        ("text", "float32", r"four-bit weights are part of int8\nAdd --quantize int8"),
        ("text(", "int8", r"'text\(' is not a regular expression"),
        ("txt", "int8", r"no module's path matches 'txt'"),
    ],
)
def test_a_pattern_without_effect_is_refused(pattern: str, precision: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        export(
            tiny.retriever(tiny.DUAL),
            tiny.tokenizer(),
            tmp_path / "b",
            name="b",
            precision=precision,
            four_bits=pattern,
        )
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("exact", [True, False])
def test_weights_that_are_the_same_in_float16_are_kept_in_it(exact: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((256, 256)).astype(np.float16).astype(np.float32) + (0 if exact else 1e-5)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 256])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 256])
    weights = [numpy_helper.from_array(weight.astype(np.float32), "w")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "it", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    before = model.SerializeToString()
    halve(model)
    onnx.checker.check_model(model)
    after = model.SerializeToString()
    assert (len(after) < 0.6 * len(before)) == exact
    inputs = {"x": random.standard_normal((3, 256)).astype(np.float32)}
    found = [onnxruntime.InferenceSession(one).run(None, inputs)[0] for one in (before, after)]
    np.testing.assert_array_equal(*found)
