"""Frozen parts of a model, the mode of its layers in training, and how they are computed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend

from sightline.errors import ModelError, RecipeError
from sightline.models import towers
from sightline.models.checkpoint import AnyRetriever
from sightline.models.retriever import Retriever

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The implementations of attention to train with. cuDNN's takes a millisecond to plan each call, as shapes vary."""

Backend = str | Callable[..., Any]
"""A backend of `torch.compile`: a name, or a function."""
_WITHOUT = "To train without compiling, leave out optimizer.compile."


def image_tower_is_frozen(model: AnyRetriever) -> bool:
    """Return whether the image tower, including its codes, is completely frozen."""
    tower = model.image
    return tower is not None and not any(p.requires_grad for p in tower.parameters())


def training_mode(model: AnyRetriever) -> None:
    """Enable dropout, except in frozen towers.

    Batch normalisation keeps its stored statistics, because those of a batch would depend on how it is split into
    chunks and processes.
    """
    model.train()
    for part in model.parts().values():
        if not any(p.requires_grad for p in part.parameters()):
            part.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def compile_layers(model: Retriever, backend: Backend = "inductor") -> None:
    """Compile the transformer layers of all encoders that are being trained. Their weights keep their names.

    Equal layers share the compiled code, and it accepts batches of any shape. Layers are compiled when they are first
    called; that this machine can compile is checked now.
    """
    trained = {name: part for name, part in model.parts().items() if any(p.requires_grad for p in part.parameters())}
    stacks = []
    for name, part in trained.items():
        try:
            stacks.append(towers.layers(part))
        except ModelError as error:
            raise RecipeError(
                f'optimizer.compile: the encoder "{name}" has no layers to compile: {error.what}', _WITHOUT
            ) from error
    _check_compiler(next(model.parameters()).device, backend)
    for layer in (layer for stack in stacks for layer in stack):
        layer.compile(dynamic=True, backend=backend)


def _check_compiler(device: torch.device, backend: Backend) -> None:
    """Compile a small function, to find out whether the compiler is missing or broken."""
    try:
        torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.zeros(8, device=device))
    except Exception as error:  # backends raise many kinds of exceptions
        reason = str(getattr(error, "inner_exception", error)).strip().partition("\n")[0]
        raise RecipeError(
            f"optimizer.compile: nothing can be compiled on this machine: {reason}",
            f"Install a C++ compiler such as g++. {_WITHOUT}",
        ) from error
