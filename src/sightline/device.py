"""Select the device for long jobs. Torch is imported only if needed, because that takes longer than most searches."""

import importlib.util
import os
import threading
from functools import cache
from pathlib import Path
from typing import Literal

from sightline.errors import SightlineError

Device = Literal["cpu", "gpu"]
VARIABLE = "SIGHTLINE_DEVICE"
DEVICES = ("auto", "cpu", "gpu")
CAPTURING = threading.Lock()
"""Held while a CUDA graph is captured: starting another capture would synchronise the device and abort this one."""
_DRIVER = Path("/dev/nvidiactl")  # exists if NVIDIA's driver is running


@cache
def has_gpu() -> bool:
    """Return whether long jobs, such as serving and indexing, will run on a GPU.

    With SIGHTLINE_DEVICE=auto, the default, they do if a GPU and torch are available; with `cpu`, never. With `gpu`, a
    missing GPU is an error.
    """
    wish = _wish()
    if wish == "cpu" or (wish == "auto" and not _is_likely()):
        return False
    if _torch_sees_one():
        return True
    if wish == "gpu":
        raise SightlineError(
            f"{VARIABLE}=gpu, but torch sees no GPU",
            "Install the driver and a torch built for it, or unset the variable.",
        )
    return False


def preferred_device() -> Device:
    """Return the device for a job that takes longer than importing torch: the GPU, if there is a usable one."""
    return "gpu" if has_gpu() else "cpu"


def gpu_required() -> bool:
    """Return whether SIGHTLINE_DEVICE=gpu forbids falling back to the CPU."""
    return _wish() == "gpu"


def _wish() -> str:
    wish = os.environ.get(VARIABLE, "auto")
    if wish not in DEVICES:
        raise SightlineError(f"{VARIABLE}={wish}: unknown device", f"Choose one of {', '.join(DEVICES)}.")
    return wish


def _is_likely() -> bool:
    """Return whether there is a driver, a GPU visible to this process, and torch."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return _DRIVER.exists() and not is_hidden and importlib.util.find_spec("torch") is not None


def _torch_sees_one() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
