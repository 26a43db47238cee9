"""Epochs whose batches consist of images that the model finds similar (paper 2, section 3.4)."""

from collections.abc import Iterator
from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sightline.arrays import Int64Array
from sightline.datasets import neighbours
from sightline.models.fragments import clusters
from sightline.models.retriever import Retriever
from sightline.training.corpus import Corpus, FeatureCache, normalised
from sightline.training.data_tables import NeighbourRecipe
from sightline.training.distributed import World
from sightline.training.recipe import Recipe
from sightline.training.region_images import RegionImages
from sightline.training.state import saved_tensors

NAME = "neighbours"
"""The name of the image clusters in the saved state."""
_BATCH = 128
_ROUNDS = 20  # of k-means; further ones change little


class Neighbours:
    """The clusters of the training images, and the batches drawn from them.

    Clusters are recomputed at the start of each epoch and saved with the state of the run, so that a run interrupted
    within an epoch resumes with the same batches.

    seen: cached features of the image tower, or regions.
    """

    def __init__(
        self,
        asked: NeighbourRecipe,
        recipe: Recipe,
        corpus: Corpus,
        model: Retriever,
        seen: FeatureCache | RegionImages | None,
        world: World,
        per_epoch: int,
        steps: int,
    ) -> None:
        self._asked, self._recipe, self._corpus = asked, recipe, corpus
        self._model, self._seen, self._world = model, seen, world
        self._per_epoch, self._first_epoch = per_epoch, ceil(round(asked.begin * steps) / per_epoch)
        self.cluster_of: Int64Array = np.zeros(len(corpus), dtype=np.int64)

    def restore(self, saved: Path) -> None:
        """Restore the clusters from a saved state."""
        found = saved_tensors(saved, NAME)
        if found:
            self.cluster_of = found[""].numpy()

    def has(self, epoch: int) -> bool:
        """Return whether the batches of an epoch are drawn from clusters."""
        return epoch >= self._first_epoch

    def batches(self, epoch: int, start: int) -> Iterator[Int64Array]:
        """Yield the batches of an epoch, skipping the first `start`; clusters are computed at the start of an epoch."""
        if not start:
            self.cluster_of = self._clusters()
        counts, size, seed = self._corpus.captions_per_image, self._recipe.data.batch_size, self._recipe.seed
        drawn = neighbours(counts, self.cluster_of, size, self._asked.per_cluster, seed=seed, epoch=epoch)
        return islice(drawn, start, self._per_epoch)

    @torch.no_grad()
    def _clusters(self) -> Int64Array:
        """Assign every image to a cluster by its embedding; all processes use the result of the leading one."""
        corpus, model, seen, world = self._corpus, self._model, self._seen, self._world
        own = world.share(len(corpus))
        device = next(model.parameters()).device.type
        model.eval()
        parts = []
        for first in range(own.start, own.stop, _BATCH):
            numbers = np.arange(first, min(first + _BATCH, own.stop))
            images = normalised(corpus.pixels(numbers), corpus.preprocess) if seen is None else seen.of_images(numbers)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                parts.append(model.encode_images(images).embedding.float())
        embeddings = world.gather(torch.cat(parts), len(corpus))
        shares, _ = clusters(embeddings[None], min(self._asked.clusters, len(corpus)), rounds=_ROUNDS)
        found: Int64Array = world.tell(shares[0].argmax(0).cpu().numpy())
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save with the state of a run."""
        return {NAME: torch.from_numpy(self.cluster_of)}
