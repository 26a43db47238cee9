"""Samplers: which pairs of image and caption are in each batch.

A batch is an integer array [batch, 2] with one pair per row: the index of the image, and the index of the caption among
those of that image. Images may have any number of captions; those without captions never appear. (seed, epoch) alone
determines everything, and the global random state is not used, so that a run can be repeated, and resumed in the middle
of an epoch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt

from sightline.datasets.rounds import full_rounds, rounds_needed, schedule
from sightline.errors import DataError

Batch = npt.NDArray[np.int64]
DrawRule = Literal["pairs", "unique", "one", "all"]


@dataclass(frozen=True, slots=True)
class Sampler:
    """The batches of every epoch of a training run.

    captions_per_image: the number of captions of each image, [images].
    draw: "pairs" (`shuffled_pairs`), "unique" (the same, but no image twice in a batch), "one" (`one_caption`) or "all"
        (`all_captions`, where `batch_size` counts images).
    drop_last: drop batches that are not full, so that every batch has the same number of negatives.

    >>> sampler = Sampler([5, 5, 1, 0], batch_size=2, seed=7)
    >>> sampler.batches_per_epoch
    5
    >>> [batch.shape for batch in sampler.batches(epoch=0)]
    [(2, 2), (2, 2), (2, 2), (2, 2), (2, 2)]
    """

    captions_per_image: Sequence[int]
    batch_size: int
    seed: int = 0
    draw: DrawRule = "pairs"
    drop_last: bool = True

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch, the same for every epoch."""
        counts = _checked(self.captions_per_image, self.batch_size, self.draw != "pairs", self.drop_last)
        if self.draw == "unique":
            return (full_rounds if self.drop_last else rounds_needed)(counts, self.batch_size)
        total = int(counts.sum() if self.draw == "pairs" else np.count_nonzero(counts))
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, skipping the first `start`, which a resumed run has already seen."""
        counts, size, keep = self.captions_per_image, self.batch_size, self.drop_last
        if self.draw in ("one", "all"):
            draw = one_caption if self.draw == "one" else all_captions
            batches = draw(counts, size, seed=self.seed, epoch=epoch, drop_last=keep)
        else:
            unique = self.draw == "unique"
            batches = shuffled_pairs(counts, size, seed=self.seed, epoch=epoch, drop_last=keep, unique_images=unique)
        return islice(batches, start, None)


def shuffled_pairs(
    captions_per_image: Sequence[int],
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    drop_last: bool = True,
    unique_images: bool = False,
) -> Iterator[Batch]:
    """Yield every caption once per epoch, shuffled differently in each epoch.

    With `unique_images`, no image is in a batch twice, because its second caption would be a false negative. Every
    caption still appears once; if an image has more captions than there would be batches, or images run out towards
    the end, the last batches are smaller. `drop_last` then drops as few captions as possible to make all batches full,
    different ones in each epoch.
    """
    counts = _checked(captions_per_image, batch_size, unique_images, drop_last)
    random = _random(seed, epoch)
    if unique_images:
        return _with_captions(schedule(counts, batch_size, random, full=drop_last), counts, random)
    pairs = np.stack([np.repeat(np.arange(len(counts)), counts), _captions_in_order(counts)], axis=1)
    return _cut(random.permutation(pairs), batch_size, drop_last)


def one_caption(
    captions_per_image: Sequence[int], batch_size: int, *, seed: int, epoch: int, drop_last: bool = True
) -> Iterator[Batch]:
    """Yield every image once per epoch, with one random caption: every image has the same weight."""
    counts = _checked(captions_per_image, batch_size, True, drop_last)
    random = _random(seed, epoch)
    images = random.permutation(np.flatnonzero(counts))
    return _cut(np.stack([images, random.integers(counts[images])], axis=1), batch_size, drop_last)


def all_captions(
    captions_per_image: Sequence[int], batch_size: int, *, seed: int, epoch: int, drop_last: bool = True
) -> Iterator[Batch]:
    """Yield every image once per epoch with all of its captions: `batch_size` images, and more rows, per batch."""
    counts = _checked(captions_per_image, batch_size, True, drop_last)
    images = _random(seed, epoch).permutation(np.flatnonzero(counts))
    for chosen in _cut(images, batch_size, drop_last):
        yield np.stack([np.repeat(chosen, counts[chosen]), _captions_in_order(counts[chosen])], axis=1)


def neighbours(
    captions_per_image: Sequence[int],
    cluster_of: Batch,
    batch_size: int,
    per_cluster: int,
    *,
    seed: int,
    epoch: int,
) -> Iterator[Batch]:
    """Endlessly yield batches: `per_cluster` images from each of several clusters, each with one of its captions.

    cluster_of: [images]. The images of a batch are distinct. Clusters are drawn with a probability proportional to
    their size, so that every image appears about equally often. A cluster that is too small contributes all of its
    images, and random images fill up the batch if all clusters together are too small.
    """
    counts = _checked(captions_per_image, batch_size, True, True)
    random = _random(seed, epoch)
    members = [np.flatnonzero((cluster_of == cluster) & (counts > 0)) for cluster in np.unique(cluster_of[counts > 0])]
    sizes = np.array([len(some) for some in members])
    while True:
        # Sorting exponential waiting times with rates equal to sizes draws clusters by size, without replacement.
        order = np.argsort(random.exponential(size=len(members)) / sizes)
        chosen = np.concatenate([random.permutation(members[cluster])[:per_cluster] for cluster in order])
        if len(chosen) < batch_size:
            others = np.setdiff1d(np.flatnonzero(counts), chosen)
            chosen = np.concatenate([chosen, random.permutation(others)])
        chosen = chosen[:batch_size]
        yield np.stack([chosen, random.integers(counts[chosen])], axis=1)


def _checked(captions_per_image: Sequence[int], batch_size: int, unique: bool, drop_last: bool) -> Batch:
    """Reject arguments that would yield no batch at all."""
    counts = np.asarray(captions_per_image, dtype=np.int64)
    if counts.ndim != 1 or (counts < 0).any():
        raise ValueError(f"captions_per_image must be a list of non-negative numbers, not {captions_per_image!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    there = int(np.count_nonzero(counts) if unique else counts.sum())
    if there < (batch_size if drop_last else 1):
        what = "pictures with captions" if unique else "captions"
        raise DataError(
            f"batches of {batch_size} cannot be drawn from only {there} {what}",
            "Lower the batch size (in a recipe, data.batch_size), or check the language of the captions.",
        )
    return counts


def _random(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,)))


def _captions_in_order(counts: Batch) -> Batch:
    """Return the number of each caption within its image, counted from 0, image by image: [captions]."""
    first = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(first, counts)


def _cut(pairs: Batch, batch_size: int, drop_last: bool) -> Iterator[Batch]:
    end = len(pairs) - len(pairs) % batch_size if drop_last else len(pairs)
    return (pairs[start : start + batch_size] for start in range(0, end, batch_size))


def _with_captions(rounds: Iterator[Batch], counts: Batch, random: np.random.Generator) -> Iterator[Batch]:
    """Assign each image of each round its next caption, in a random order per image."""
    images = np.repeat(np.arange(len(counts)), counts)
    shuffled = np.lexsort((random.random(len(images)), images)) - np.repeat(np.cumsum(counts) - counts, counts)
    following = np.cumsum(counts) - counts
    for chosen in rounds:
        yield np.stack([chosen, shuffled[following[chosen]]], axis=1)
        following[chosen] += 1
