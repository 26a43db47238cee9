"""Recording values inside a graph while it runs on samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

Floats = npt.NDArray[np.float32]
Sample = Mapping[str, npt.NDArray[Any]]
"""The inputs of a graph for one item, by name."""


def observed(model: onnx.ModelProto, names: Sequence[str], samples: Iterable[Sample]) -> Iterator[list[Floats]]:
    """Run a graph on each of the samples; yields the named values, in the order of `names`."""
    import onnxruntime

    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for sample in samples:
        yield session.run(list(names), dict(sample))
