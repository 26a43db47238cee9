"""Frozen parts of a model, and the mode of its layers in training."""

from torch import nn

from sightline.models.checkpoint import AnyRetriever


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
