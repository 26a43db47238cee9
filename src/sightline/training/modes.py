"""Frozen parts of a model, the mode of its layers in training, and how they are computed."""

from torch import nn
from torch.nn.attention import SDPBackend

from sightline.models import towers
from sightline.models.checkpoint import AnyRetriever
from sightline.models.retriever import Retriever

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The implementations of attention to train with. cuDNN's takes a millisecond to plan each call, as shapes vary."""


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


def compile_layers(model: Retriever, backend: str = "inductor") -> None:
    """Compile the transformer layers of all encoders that are being trained. Their weights keep their names.

    Equal layers share the compiled code, and it accepts batches of any shape.
    """
    trained = [part for part in model.parts().values() if any(p.requires_grad for p in part.parameters())]
    for layer in (layer for part in trained for layer in towers.layers(part)):
        layer.compile(dynamic=True, backend=backend)
