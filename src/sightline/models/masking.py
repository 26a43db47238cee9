"""Encoding texts and images with hidden words and fragments, for the masked losses.

Hidden inputs are replaced before any trained weight reads them. Outputs are the states of the last layer; to add the
other side's [CLS] to them, both sides need the same width (`check_same_width`).

Fragments are hidden, and their features predicted, in one of three ways:

- A region-based model with an `image_reader`: fragments are regions, and their features are the targets. Features of
  a hidden region are replaced by zeros, as in UNITER; its box remains.
- A pixel-based model with an `image_reader`: fragments are the outputs of the frozen image tower. They are hidden from
  the reader in the same way.
- A model without an `image_reader`: fragments are all patches of the image tower, which has frozen lower layers. Hidden
  patches are zero (the mean colour) in the image itself, and the targets are the frozen layers' outputs for the whole
  image.
"""

from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.dual_stream import DualStream
from sightline.models.heads import UnitProjection
from sightline.models.image_reader import ImageReader
from sightline.models.image_tower import ImageTower
from sightline.models.retriever import Regions, Retriever, Tokens, TowerFeatures

Images: TypeAlias = Tensor | TowerFeatures | Regions
"""Images before they are encoded: pixels, features of an image tower, or regions."""


def two_towers(model: Retriever, asked: str) -> DualStream:
    """Return the model as a `DualStream`; raises if it is of another kind."""
    if not isinstance(model, DualStream):
        raise ModelError(
            f"{asked} needs a model with two towers, not a {type(model).__name__}",
            'Choose a model with kind = "dual_stream".',
        )
    return model


def check_same_width(model: DualStream, asked: str) -> int:
    """Return the width, common to both sides, of the vectors projected to embeddings; raises if there is none."""
    text, image = model.text_embedding, model.image_embedding
    if not isinstance(text, UnitProjection) or not isinstance(image, UnitProjection):
        raise ModelError(
            f"{asked} adds the [CLS] of the other side, but relations compute the embedding from all fragments",
            "Leave out model.relations, or set fused = false.",
        )
    if text.linear.in_features != image.linear.in_features:
        raise ModelError(
            f"{asked} cannot add texts of width {text.linear.in_features} to images of width "
            f"{image.linear.in_features}",
            "Use an image_reader of the text tower's width, or set fused = false.",
        )
    return text.linear.in_features


def looked(model: DualStream, images: Images) -> Images:
    """Return the input in which fragments are hidden: pixels, regions, or features for an `image_reader`."""
    return images if model.image is None or model.image_reader is None else _seen(model, images)


def feature_width(model: DualStream) -> int:
    """Return the dimension of a hidden fragment's target."""
    regions = model.config.regions
    return regions.feature_dim if regions is not None else _tower(model).hidden


def output_width(model: DualStream) -> int:
    """Return the width of an image's fragments, as `see_with_gaps` returns them."""
    return _tower(model).hidden if model.image_reader is None else model.image_reader.tower.hidden


def may_hide(model: DualStream, images: Images) -> Tensor:
    """Return which fragments of images may be hidden, [batch, n]: real regions, or all patches."""
    if isinstance(images, Regions):
        return images.mask
    tower = _tower(model)
    count = tower.places if model.image_reader is not None else tower.rows**2
    first = images if isinstance(images, Tensor) else images.pooled
    return torch.ones(len(first), count, dtype=torch.bool, device=first.device)


def read_with_gaps(model: DualStream, tokens: Tokens, blank: Tensor, hidden: Tensor) -> Tensor:
    """Encode texts whose words at `hidden` [batch, n] are replaced by `blank` [width]: [batch, n, width]."""
    words = torch.where(hidden[:, :, None], blank, model.text.words(tokens.ids))
    return model.text.read(words, tokens.mask, None, None, model.text_codes)[:, : hidden.shape[1]]


def see_with_gaps(model: DualStream, images: Images, hidden: Tensor) -> Tensor:
    """Encode images with hidden fragments [batch, n]; returns every fragment, [batch, n, width].

    images: as returned by `looked`.
    """
    if isinstance(images, Regions):
        features = torch.where(hidden[:, :, None], 0.0, images.features)
        return _reader(model)(torch.cat([features, images.boxes], -1), images.mask)[:, 1:]  # type: ignore[no-any-return]
    if model.image_reader is not None:
        read = model.image_reader(torch.where(hidden[:, :, None], 0.0, _seen(model, images).patches))
        return read[:, 1 : 1 + hidden.shape[1]]  # type: ignore[no-any-return]
    return _covered(_tower(model), _pixels(images), hidden)


def _covered(tower: ImageTower, pixels: Tensor, hidden: Tensor) -> Tensor:
    """Encode images whose hidden patches have the mean colour; returns all patches."""
    side = pixels.shape[-1] // tower.rows
    covered = hidden.view(-1, 1, tower.rows, tower.rows).repeat_interleave(side, 2).repeat_interleave(side, 3)
    rest = pixels.shape[-1] - tower.rows * side
    return tower.patches(torch.where(F.pad(covered, (0, rest, 0, rest)), 0.0, pixels))


@torch.no_grad()
def frozen_features(model: DualStream, images: Images) -> Tensor:
    """Return the target for every fragment: [batch, n, `feature_width`], each normalised to mean 0 and variance 1.

    The features of regions, or the output of frozen weights for patches. Raises if they would change during training,
    or if nothing that reads them is trained.
    """
    if isinstance(images, Regions):
        _reader(model)
        return F.layer_norm(images.features.float(), images.features.shape[-1:])
    tower = _tower(model)
    if model.image_reader is not None:
        if any(parameter.requires_grad for parameter in tower.parameters()):
            raise ModelError(
                "the image tower provides the targets for hidden fragments, so it must not be trained",
                "Freeze it: optimizer.rates.image = 0.",
            )
        seen = _seen(model, images).patches.float()
        return F.layer_norm(seen, seen.shape[-1:])
    frozen = towers.frozen_layers(tower.encoder)
    if not 0 < frozen < len(towers.layers(tower.encoder)):
        raise ModelError(
            "to hide patches, the image tower needs frozen lower layers and trained upper layers, but "
            + ("all of it is frozen" if frozen else "none of it is frozen"),
            "Set optimizer.frozen_layers.image to some of its layers, or use an image_reader.",
        )
    was_training = tower.encoder.training
    tower.encoder.eval()  # targets have no dropout
    features = tower.patches(_pixels(images), frozen)
    tower.encoder.train(was_training)
    return features.float()


def _tower(model: DualStream) -> ImageTower:
    if model.image is None:
        raise ModelError("this model reads regions, not pixels")
    return model.image


def _reader(model: DualStream) -> ImageReader:
    if model.image_reader is None:
        raise ModelError("predicting hidden regions needs an image_reader", "Set model.image_reader.")
    return model.image_reader


def _seen(model: DualStream, images: Images) -> TowerFeatures:
    return images if isinstance(images, TowerFeatures) else model.image_features(_pixels(images))


def _pixels(images: Images) -> Tensor:
    if not isinstance(images, Tensor):
        raise ModelError(
            "without an image_reader, patches can be masked only in pixels, not in the features of a frozen image tower"
        )
    return images
