"""Matrix products in the calling thread.

NumPy computes a large product in several threads, which spin while they wait for one another: on a busy machine, a
one-millisecond product took two hundred. ONNX Runtime computes it in one thread, and is a tenth to a fifth faster.
"""

from functools import cache
from typing import Any

from sightline.arrays import Float32Array


def product(left: Float32Array, right: Float32Array) -> Float32Array:
    """Return the matrix product of [n, dim] and [dim, m]: [n, m].

    >>> import numpy as np
    >>> product(np.array([[1.0, 2.0]], dtype=np.float32), np.array([[3.0], [4.0]], dtype=np.float32))
    array([[11.]], dtype=float32)
    """
    found: Float32Array = _session().run(None, {"left": left, "right": right})[0]
    return found


@cache
def _session() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(_model(), options, providers=["CPUExecutionProvider"])


def _model() -> bytes:
    """Return an ONNX model with one operator, which is so small that its protocol buffer is written field by field."""
    node = _field(1, b"left") + _field(1, b"right") + _field(2, b"product") + _field(4, b"MatMul")
    float32 = _field(2, _field(1, b"\x08\x01"))
    inputs = b"".join(_field(11, _field(1, name) + float32) for name in (b"left", b"right"))
    graph = _field(1, node) + _field(2, b"product") + inputs + _field(12, _field(1, b"product") + float32)
    return b"\x08\x07" + _field(7, graph) + _field(8, b"\x10\x0d")  # format 7, operators of version 13


def _field(number: int, value: bytes) -> bytes:
    """Encode a field of a protocol buffer: its number and type, its length, and its data of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value
