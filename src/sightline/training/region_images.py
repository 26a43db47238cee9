"""The regions of the training images, which a region-based model reads instead of pixels."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from sightline.arrays import Int64Array
from sightline.datasets.regions import RegionSlice, RegionStore
from sightline.errors import DataError, MediaError, RecipeError
from sightline.media import RegionConfig, split_padding, stack_inputs, to_input
from sightline.models.retriever import Regions
from sightline.parallel import usable_cpus
from sightline.training.corpus import Corpus
from sightline.training.recipe import Recipe


class RegionImages:
    """Regions of the images of a corpus, read from their memory-mapped store when they are drawn.

    counts: [images], the number of regions of each image.
    """

    def __init__(self, corpus: Corpus, config: RegionConfig, device: torch.device) -> None:
        self._records, self._config, self._device = corpus.records, config, device
        self._pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="sightline-regions")
        images = [record.image for record in corpus.records]
        self.counts = np.array([one.count if isinstance(one, RegionSlice) else 0 for one in images], dtype=np.int64)
        if not self.counts.all():
            raise DataError(
                f"{images[int(self.counts.argmin())].name}: this is an image, but the model reads regions",
                "Detect regions in your images, or convert published features: sightline regions SOURCE --out STORE",
            )

    @classmethod
    def of(cls, recipe: Recipe, corpus: Corpus, device: torch.device) -> "RegionImages | None":
        """Return the regions of a corpus, for a model that reads regions; None for one that reads pixels."""
        if not isinstance(corpus.input, RegionConfig):
            _refuse_regions(corpus)
            return None
        _check_stores(recipe, corpus, corpus.input)
        if recipe.augment is not None:
            raise RecipeError("augment: this model reads regions, not pixels", "Remove [augment].")
        return cls(corpus, corpus.input, device)

    def of_images(self, images: Int64Array, most: int = 0) -> Regions:
        """Return the regions of the images with these indices, padded to the largest number among them or to `most`."""
        try:
            sources = [self._records[image].image for image in images]
            rows = list(self._pool.map(lambda source: to_input(source, self._config), sources))
        except MediaError as error:
            way_out = "Repair it, or remove it and its captions from the training data; then continue with --resume."
            raise MediaError(error.name, error.reason, error.way_out or way_out) from error
        batch, mask = split_padding(stack_inputs(rows))
        lacking = max(0, most - batch.shape[1])
        regions = torch.from_numpy(np.pad(batch, ((0, 0), (0, lacking), (0, 0)))).to(self._device)
        there = torch.from_numpy(np.pad(mask, ((0, 0), (0, lacking)))).to(self._device)
        return Regions.of(regions, there, self._config)


def _check_stores(recipe: Recipe, corpus: Corpus, config: RegionConfig) -> None:
    """Reject regions of a width that the model does not read, or without the boxes that it needs."""
    for folder in sorted({one.image.store for one in corpus.records if isinstance(one.image, RegionSlice)}):
        spec = RegionStore.open(folder).spec
        if spec.feature_dim != config.feature_dim:
            other = f"Set model.regions.feature_dim = {spec.feature_dim}."
            raise RecipeError(
                f"{folder}: has {spec.feature_dim} numbers per region, but the model expects {config.feature_dim}",
                "Use regions from the detector that the model was trained with." if recipe.start else other,
            )
        if config.box_dim and not spec.boxes:
            other = "Use regions with boxes, or train a model without them: model.regions.box_dim = 0."
            raise RecipeError(f"{folder}: has regions without boxes, but the model expects boxes", other)


def _refuse_regions(corpus: Corpus) -> None:
    """Reject regions, because the model reads pixels."""
    for record in corpus.records:
        if isinstance(record.image, RegionSlice):
            raise DataError(
                f"{record.image.name}: has regions, but the model reads pixels",
                "Use the images themselves in data.train, or train a model that has model.regions.",
            )
