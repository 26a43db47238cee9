"""Encoder inputs: the tokenised captions and the images of this process's share of a batch."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sightline.arrays import Int64Array
from sightline.losses import Inputs
from sightline.models.masking import Images
from sightline.models.retriever import Retriever, Tokens
from sightline.training.augment import Augment
from sightline.training.captions import DrawnBatch
from sightline.training.corpus import Corpus, FeatureCache, device_pixels, normalised
from sightline.training.distributed import World, to_device
from sightline.training.gradients import Side
from sightline.training.mixture import StepBatch
from sightline.training.region_images import RegionImages


class BatchInputs:
    """Builds the inputs of a model's encoders, batch by batch.

    regions: the images' regions, for a model that reads regions. seen: cached features of a frozen image tower. Without
    either, the model reads the corpus's pixels, augmented by `augment` if given.
    """

    def __init__(
        self,
        model: Retriever,
        corpus: Corpus,
        regions: RegionImages | None,
        seen: FeatureCache | None,
        augment: Augment | None,
        world: World,
        device: torch.device,
    ) -> None:
        self._model, self._corpus, self._regions, self._seen = model, corpus, regions, seen
        self._augment, self._world, self._device = augment, world, device

    def pixels(self, batch: DrawnBatch, seed: int) -> Tensor:
        """Augmented images of this process's share; empty for regions, and the drawn views for cached features."""
        if self._regions is not None:
            return torch.empty(0)
        own = self._world.share(len(batch.images))
        if self._seen is not None:
            return self._seen.draw(len(batch.images), seed)[own]
        if batch.decoding is not None:
            pixels = device_pixels(batch.decoding, self._device)
        else:
            pixels = self._corpus.pixels(batch.images[own])
        return self._augmented(pixels, own.start, seed)

    def decoding(self, one: StepBatch) -> StepBatch:
        """Start decoding this process's share of a batch's images, and return the batch with them."""
        own = one.batch.images[self._world.share(len(one.batch.images))]
        return one._replace(batch=replace(one.batch, decoding=self._corpus.decoding(own)))

    def texts(self, batch: DrawnBatch) -> Side:
        """Return the texts to encode."""
        tokens = self._tokens(batch)
        return Side(
            lambda rows: self._model.encode_texts(Tokens(tokens.ids[rows], tokens.mask[rows])),
            to_device(torch.from_numpy(batch.text_images), self._device),
        )

    def images(self, batch: DrawnBatch, pixels: Tensor) -> Side:
        """Return the images to encode; `pixels` is what the method `pixels` returned for the batch."""
        images = self._images(batch, pixels)
        return Side(
            lambda rows: self._model.encode_images(images(rows)),
            to_device(torch.from_numpy(batch.images), self._device),
        )

    def masks(self, batch: DrawnBatch) -> tuple[Tensor | None, Tensor | None]:
        """Return the masks [T, I] of additional positives and of excluded pairs; None if there are none."""
        positive, excluded = (self._mask(batch, pairs) for pairs in (batch.same.positive, batch.same.excluded))
        return positive, excluded

    def _mask(self, batch: DrawnBatch, pairs: Int64Array) -> Tensor | None:
        if not len(pairs):
            return None
        shape = len(batch.text_images), len(batch.images)
        mask = torch.zeros(shape[0] * shape[1], dtype=torch.bool, device=self._device)
        return mask.index_fill_(0, to_device(torch.from_numpy(pairs), self._device), True).view(shape)

    def inputs(self, batch: DrawnBatch, pixels: Tensor) -> Inputs:
        """Return the inputs of this process's share of the batch; `pixels` as for `images`."""
        return Inputs(self._tokens(batch), self._images(batch, pixels)(slice(None)))

    def _tokens(self, batch: DrawnBatch) -> Tokens:
        """Return the tokenised captions of this process's share."""
        own = self._world.share(len(batch.text_images))
        return Tokens(*(to_device(field[own], self._device) for field in batch.tokens))

    def _images(self, batch: DrawnBatch, pixels: Tensor) -> Callable[[slice], Images]:
        """Return a function that reads a slice of this process's share of the images."""
        numbers = batch.images[self._world.share(len(batch.images))]
        if self._regions is not None:
            regions = self._regions
            most = int(regions.counts[batch.images].max())  # over the whole batch, so that all processes pad equally
            return lambda rows: regions.of_images(numbers[rows], most)
        if self._seen is not None:
            seen = self._seen
            return lambda rows: seen.of_images(numbers[rows], pixels[rows])
        preprocess = self._corpus.preprocess
        return lambda rows: normalised(pixels[rows], preprocess)

    def _augmented(self, pixels: Tensor, before: int, seed: int) -> Tensor:
        """Augment this process's images, skipping the random numbers of the `before` images that precede them."""
        if self._augment is None:
            return pixels
        generator = torch.Generator().manual_seed(seed)
        if before:
            self._augment(pixels.new_zeros(before, 3, 1, 1), generator)
        return self._augment(pixels, generator)
