"""What runs the graphs of a bundle: ONNX Runtime on the processors or, for work that lasts, torch on a GPU."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sightline.errors import BundleError, UnknownOperatorError

Arrays = dict[str, npt.NDArray[Any]]
Device = Literal["cpu", "gpu"]


class Engine(Protocol):
    """One graph, loaded. Safe to use from several threads."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what the graph gives."""
        ...

    def run(self, inputs: Arrays) -> Arrays:
        """Run the graph: arrays by the names of its inputs in, arrays by the names of its outputs out.

        Where it reads float32, float16 will do.
        """
        ...


class OnnxRuntime:
    """A graph under ONNX Runtime, on the processors."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # texts differ in length, and a plan kept for each length only takes memory
        # Threads that wait for more work by spinning take the processor from whatever comes after the model.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's own exceptions share no public base
            raise BundleError(f"{path}: ONNX Runtime cannot load it: {error}") from error
        self.outputs = tuple(output.name for output in self._session.get_outputs())
        self._singles = {given.name for given in self._session.get_inputs() if given.type == "tensor(float)"}

    def run(self, inputs: Arrays) -> Arrays:
        """Run the graph."""
        given = {name: np.asarray(of, np.float32) if name in self._singles else of for name, of in inputs.items()}
        return dict(zip(self.outputs, self._session.run(self.outputs, given), strict=True))


def preferred_device() -> Device:
    """Where work goes that lasts longer than importing torch takes, such as a server's or an indexing run's."""
    from sightline.device import has_gpu

    return "gpu" if has_gpu() else "cpu"


def load_engine(path: Path, device: Device, threads: int) -> Engine:
    """Load a graph for a device.

    A graph that torch cannot run goes to the processors, unless the user insists on the GPU. Where ONNX Runtime is not
    installed, torch runs graphs on the processors, too.
    """
    if device == "cpu" and find_spec("onnxruntime") is not None:
        return OnnxRuntime(path, threads)
    from sightline.device import gpu_required

    try:
        return _under_torch(path, device)
    except UnknownOperatorError as error:
        if device == "cpu" or gpu_required():
            raise
        warnings.warn(f"{error.what}. It runs on the processors instead.", stacklevel=2)
        return OnnxRuntime(path, threads)


def _under_torch(path: Path, device: Device) -> Engine:
    try:
        from sightline.kernels.graphs import TorchGraph
    except ImportError as error:
        raise BundleError(
            f"{path}: needs ONNX Runtime to run, or torch and onnx: {error}", "pip install onnxruntime"
        ) from error
    return TorchGraph.open(path, "cuda" if device == "gpu" else "cpu")
