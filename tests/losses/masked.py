"""Batches with what they were encoded from, for objectives that hide some of it, and models that they train."""

import dataclasses

import torch
from torch import Tensor

import tiny
from sightline.losses import Inputs, Loss, MaskedFragments, MaskedWords, Pairs
from sightline.models import DualStream, Regions, Tokens, TowerConfig, TowerFeatures
from sightline.models.masking import Images, feature_width

TEXT_IDS, IMAGE_IDS = torch.tensor([0, 0, 1, 2, 3]), torch.tensor([0, 1, 2, 3])
LOSSES: dict[str, Loss] = {
    "vmlm": MaskedWords(share=0.4),
    "mlm": MaskedWords(fused=False, share=0.4),
    "smrfr": MaskedFragments(share=0.4),
    "mrfr": MaskedFragments(fused=False, share=0.4),
    "smrc": MaskedFragments("classes", share=0.4, classes=5),
    "mrc": MaskedFragments("classes", fused=False, share=0.4, classes=5),
}
FRAGMENTS = [name for name in LOSSES if "r" in name]
KINDS = ("dual-reader", "dual-plain", "dual-regions")
"""A model whose fragments are hidden from a reader, one whose patches are hidden from the tower, and one of regions."""


def model_of(kind: str) -> DualStream:
    """A model with frozen weights below what is trained: the whole image tower, or three of its four layers."""
    regions = kind == "dual-regions"
    config = tiny.REGION_MODELS["dual-reader"] if regions else tiny.PIXEL_MODELS[kind]
    if kind == "dual-plain":  # a tower as wide as that of the words, to add one to the other
        config = dataclasses.replace(config, image=TowerConfig(config={**tiny.VISION, "hidden_size": 24}))  # type: ignore[type-var]
    model = tiny.retriever(config)
    assert isinstance(model, DualStream)
    if model.image is None:
        return model
    if kind == "dual-reader":
        model.image.requires_grad_(False)
    else:
        for name, parameter in model.image.encoder.named_parameters():
            parameter.requires_grad_("layers.3." in name or "post_" in name)
    return model


def fitted(name: str, model: DualStream) -> Loss:
    """An objective with layers for this model, and with classes if it has any."""
    torch.manual_seed(4)
    objective = LOSSES[name]
    objective.fit(model)
    if objective.needs_features:
        objective.init_from_features(torch.randn(60, feature_width(model)))
    return objective


def tokens(changed: Tensor | None = None) -> Tokens:
    """Five texts of three to nine tokens; `changed` [5, 9] says where to put other words."""
    chance = torch.Generator().manual_seed(1)
    lengths = torch.tensor([9, 3, 5, 4, 7])
    mask = torch.arange(9)[None] < lengths[:, None]
    ids = torch.randint(6, len(tiny.WORDS), mask.shape, generator=chance) * mask
    if changed is not None:
        ids = torch.where(changed, 4 + (ids - 3) % 30, ids)
    return Tokens(ids, mask)


def pixels() -> Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(2))


def regions() -> Regions:
    """Four pictures of two to five regions."""
    chance = torch.Generator().manual_seed(2)
    mask = torch.arange(5)[None] < torch.tensor([5, 2, 4, 3])[:, None]
    return Regions(torch.randn(4, 5, 10, generator=chance), torch.rand(4, 5, 6, generator=chance), mask)


def pictures_of(model: DualStream) -> Tensor | Regions:
    """What a model reads of four pictures."""
    return pixels() if model.reads_pixels else regions()


def pairs_of(
    model: DualStream,
    words: Tokens | None = None,
    images: Images | None = None,
    texts: slice = slice(None),
    pictures: slice = slice(None),
) -> Pairs:
    """The batch, of which this process has the given rows."""
    words = words or tokens()
    images = pictures_of(model) if images is None else images
    if isinstance(images, TowerFeatures | Regions):
        own_images: Images = type(images)(*(None if part is None else part[pictures] for part in images))
    else:
        own_images = images[pictures]
    return Pairs(
        model.encode_texts(tokens()),
        model.encode_images(pictures_of(model)),
        TEXT_IDS,
        IMAGE_IDS,
        texts,
        pictures,
        inputs=Inputs(Tokens(words.ids[texts], words.mask[texts]), own_images),
    )


def loss_of(objective: Loss, pairs: Pairs, model: DualStream, seed: int = 0) -> Tensor:
    found: Tensor = objective(pairs, model, torch.Generator().manual_seed(seed))
    return found
