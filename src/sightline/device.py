"""Whether a GPU is at hand, found out without importing torch: that alone takes longer than most searches."""

import importlib.util
import os
import threading
from functools import cache
from pathlib import Path

from sightline.errors import SightlineError

VARIABLE = "SIGHTLINE_DEVICE"
DEVICES = ("auto", "cpu", "gpu")
CAPTURING = threading.Lock()
"""Held while a CUDA graph is captured: whoever begins to capture waits for the device, which ends any other capture."""
_DRIVER = Path("/dev/nvidiactl")  # there wherever NVIDIA's driver runs


@cache
def has_gpu() -> bool:
    """Whether work that lasts, such as a server's or an indexing run's, goes to a GPU.

    With SIGHTLINE_DEVICE=auto, or without it, that is wherever a GPU and torch are at hand. `cpu` says never, and
    `gpu` makes it an error where there is none.
    """
    wish = _wish()
    if wish == "cpu" or (wish == "auto" and not _is_likely()):
        return False
    if _torch_sees_one():
        return True
    if wish == "gpu":
        raise SightlineError(
            f"{VARIABLE}=gpu, but torch sees no GPU", "Install the driver and a torch built for it, or leave it out."
        )
    return False


def gpu_required() -> bool:
    """Whether the user wants the GPU or nothing."""
    return _wish() == "gpu"


def _wish() -> str:
    wish = os.environ.get(VARIABLE, "auto")
    if wish not in DEVICES:
        raise SightlineError(f"{VARIABLE}={wish}: unknown", f"It is one of {', '.join(DEVICES)}.")
    return wish


def _is_likely() -> bool:
    """Whether there is a driver, a GPU of it that this process may see, and torch to use it."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return _DRIVER.exists() and not is_hidden and importlib.util.find_spec("torch") is not None


def _torch_sees_one() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
