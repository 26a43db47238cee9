"""Engines that run the graphs of a bundle: ONNX Runtime on the CPU or, for long jobs, torch on a GPU."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from sightline.arrays import Arrays, Float32Array, Int64Array
from sightline.bundle.ragged import Ragged
from sightline.device import Device, gpu_required
from sightline.errors import BundleError, UnknownOperatorError
from sightline.packages import install_command


class Engine(Protocol):
    """A loaded graph. Thread-safe."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        ...

    def run(self, inputs: Arrays) -> Arrays:
        """Run the graph on arrays by input name; returns arrays by output name.

        float16 inputs are accepted in place of float32.
        """
        ...


class OnnxRuntime:
    """A graph that ONNX Runtime runs on the CPU."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # texts differ in length, and one plan per length would waste memory
        # Spinning threads would take CPU time from whatever runs after the model.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions have no public base class
            raise BundleError(f"ONNX Runtime cannot load {path}: {error}") from error
        self.outputs = tuple(output.name for output in self._session.get_outputs())
        self._singles = {given.name for given in self._session.get_inputs() if given.type == "tensor(float)"}

    def run(self, inputs: Arrays) -> Arrays:
        """Run the graph."""
        given = {name: np.asarray(of, np.float32) if name in self._singles else of for name, of in inputs.items()}
        return dict(zip(self.outputs, self._session.run(self.outputs, given), strict=True))


def load_engine(path: Path, device: Device, threads: int) -> Engine:
    """Load a graph for a device.

    A graph that torch cannot run falls back to the CPU, unless SIGHTLINE_DEVICE=gpu. Without ONNX Runtime, torch runs
    graphs on the CPU as well.
    """
    if device == "cpu" and find_spec("onnxruntime") is not None:
        return OnnxRuntime(path, threads)
    try:
        return _under_torch(path, device)
    except UnknownOperatorError as error:
        if device == "cpu" or gpu_required():
            raise
        warnings.warn(f"{error.what}. Using the CPU instead.", stacklevel=2)
        return OnnxRuntime(path, threads)


def gpu_pair_matcher(
    engine: Engine, texts: Ragged, images: Ragged
) -> Callable[[Int64Array, Int64Array], Float32Array] | None:
    """Return a function that matches states in GPU memory by index; None if they do not fit or no GPU is used."""
    from sightline.kernels.graphs import TorchGraph
    from sightline.kernels.pairs import DevicePairs

    if isinstance(engine, TorchGraph) and DevicePairs.fit(engine, texts, images):
        return DevicePairs(engine, texts, images).match
    return None


def gpu_late_scorer(texts: Ragged, images: Ragged) -> Callable[[Int64Array, Int64Array], Float32Array] | None:
    """Return a function that scores fragments in GPU memory by index; None if they do not fit."""
    from sightline.kernels.pairs import DeviceLatePairs

    found = DeviceLatePairs.on_gpu(texts, images)
    return None if found is None else found.score


def _under_torch(path: Path, device: Device) -> Engine:
    try:
        from sightline.kernels.graphs import TorchGraph
    except ImportError as error:
        raise BundleError(
            f"{path} can be run only with ONNX Runtime, or torch and onnx: {error}", install_command("onnxruntime")
        ) from error
    return TorchGraph.open(path, "cuda" if device == "gpu" else "cpu")
