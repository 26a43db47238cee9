"""Initialising losses from frozen features of some training images, before the first step."""

import numpy as np
import torch
from torch import nn

from sightline.losses import Loss
from sightline.models.masking import Images, frozen_features, may_hide, two_towers
from sightline.models.retriever import Retriever
from sightline.training.corpus import Corpus, FeatureCache, normalised
from sightline.training.distributed import World
from sightline.training.region_images import RegionImages

IMAGES = 512
_BATCH = 64


def init_from_features(
    losses: nn.ModuleDict,
    model: Retriever,
    corpus: Corpus,
    seen: FeatureCache | RegionImages | None,
    world: World,
) -> None:
    """Initialise the losses that need it from the fragments of up to 512 images, spread over the corpus.

    All processes copy the result of the leading one, so that they have the same classes.

    seen: cached features of the image tower, or regions.
    """
    asking = [one for one in losses.values() if isinstance(one, Loss) and one.needs_features]
    if not asking:
        return
    dual = two_towers(model.eval(), "masked_fragments")
    numbers = np.unique(np.linspace(0, len(corpus) - 1, IMAGES).astype(np.int64))
    parts = []
    for start in range(0, len(numbers), _BATCH):
        some = numbers[start : start + _BATCH]
        images: Images
        images = normalised(corpus.pixels(some), corpus.preprocess) if seen is None else seen.of_images(some)
        parts.append(frozen_features(dual, images)[may_hide(dual, images)])
    features = torch.cat(parts)
    for loss in asking:
        loss.init_from_features(features)
        for buffer in loss.buffers():
            buffer.copy_(world.tell(buffer.cpu()))
