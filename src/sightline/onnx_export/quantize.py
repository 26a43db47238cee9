"""Eight-bit weights for a graph with dynamically quantised activations; optionally four bits for some modules."""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from sightline.errors import ModelError
from sightline.onnx_export.four_bits import shrink_products, shrink_tables
from sightline.onnx_export.observe import Sample
from sightline.onnx_export.static_ranges import fix_ranges

_LARGE = 1 << 16  # elements; smaller weights are not worth an extra node
_MANY_SCALES = 1 << 10
_SCOPES = "pkg.torch.onnx.name_scopes"  # metadata with the modules of a node


def quantize(path: Path, four_bits: str = "", samples: Iterable[Sample] = (), *, fixed_ranges: bool = True) -> int:
    """Rewrite the graph at `path` with int8 weights; return how many of its matrix products got four bits.

    four_bits: a pattern; matrix products of modules whose path it matches get four bits per weight.
    samples: typical inputs, one item each. With them, four-bit weights are rounded with less error
    (`shrink_products`) and, with `fixed_ranges`, the ranges of activations are fixed (`fix_ranges`) where that is
    safe, which is faster than dynamic ranges.

    Matrix products get one scale for every block of weights (128 weights, or 32 of four bits), and ONNX Runtime
    quantises their inputs in the same blocks: with one scale for a whole activation tensor, a few outliers in the
    second layer of each feed-forward network cost a CLIP tower 5 points of cosine; with blocks it loses 0.3. Large word
    tables get four bits per number, which costs 0.0005 of cosine; small ones get one scale per tensor.
    """
    with _quiet():
        model = onnx.load(path)
        products = {node.name: _module(node) for node in model.graph.node if node.op_type == "MatMul"}
        small = [name for name, module in products.items() if four_bits and re.search(four_bits, module)]
        del model.graph.value_info[:]  # the exporter's shapes of folded weights are stale
        shrink_tables(model)
        quantize_dynamic(model, path, weight_type=QuantType.QInt8, op_types_to_quantize=["Gather"])
        model = onnx.load(path)
        samples = list(samples)
        shrink_products(model, small, samples)
        if samples and fixed_ranges:
            fix_ranges(model, samples)
        model = _blocks(model)
        halve(model)
        for node in model.graph.node:
            del node.metadata_props[:]  # module paths are over 2 % of a small graph
        onnx.save(model, path)
        return len(small)


def check_pattern(four_bits: str, precision: str) -> None:
    """Reject a pattern that is not a regular expression, or that would have no effect."""
    if four_bits and precision != "int8":
        raise ModelError("four-bit weights are part of int8", "Add --quantize int8.")
    try:
        re.compile(four_bits)
    except re.error as error:
        raise ModelError(
            f"four bits: {four_bits!r} is not a regular expression: {error}", r"For example 'text\.encoder'."
        ) from error


def halve(model: onnx.ModelProto) -> None:
    """Store block scales in float16, and large weights where that is lossless, as in most of a frozen tower.

    Scales are rounded, except for those of four-bit weights, which are float16 numbers already. ONNX Runtime casts to
    float32 when it loads the graph.
    """
    scales = {node.input[2] for node in model.graph.node if node.op_type == "MatMulNBits"}
    for weight in model.graph.initializer:
        name, size = weight.name, np.prod(weight.dims)
        if weight.data_type != TensorProto.FLOAT or size < (_MANY_SCALES if name in scales else _LARGE):
            continue
        values = numpy_helper.to_array(weight)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if name in scales or np.array_equal(half.astype(np.float32), values):
            weight.CopyFrom(numpy_helper.from_array(half, f"{name}_half"))
            model.graph.node.insert(0, helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT))


def _blocks(model: onnx.ModelProto) -> onnx.ModelProto:
    quantizer = MatMulNBitsQuantizer(model, bits=8, block_size=128, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    return quantizer.model.model


def _module(node: onnx.NodeProto) -> str:
    """Return the path of the innermost module that a node comes from."""
    scopes = next((prop.value for prop in node.metadata_props if prop.key == _SCOPES), "")
    paths = [path for path in re.findall(r"'([^']*)'", scopes) if "." in path]
    return max(paths, key=len, default="")


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
