"""Batches sized by a budget of tokens and regions instead of a number of pairs (paper 4, appendix: 10,240 per GPU)."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt

from sightline.datasets.sampler import Batch
from sightline.errors import DataError

_Ints = npt.NDArray[np.int64]


class BudgetSampler:
    """Yields every caption once per epoch, in batches that stay within a budget, padding included.

    The size of a batch of n pairs is n * (its longest caption + its largest number of regions). Pairs of similar size
    share a batch, which keeps padding low. (seed, epoch) determines which pairs share a batch and the order of the
    batches. The sorted sizes, and so the batch boundaries, are the same in every epoch: every epoch has the same number
    of batches, and a run can be resumed in the middle of one. The last batch may be small.

    captions_per_image, regions_per_image: [images]; tokens: [captions], the length of each caption, image by image.

    >>> sampler = BudgetSampler([2, 1], tokens=[5, 3, 4], regions_per_image=[10, 10], budget=30)
    >>> sorted(len(batch) for batch in sampler.batches(epoch=0))
    [1, 2]
    """

    def __init__(
        self,
        captions_per_image: Sequence[int],
        tokens: Sequence[int],
        regions_per_image: Sequence[int],
        budget: int,
        seed: int = 0,
    ) -> None:
        counts = np.asarray(captions_per_image, dtype=np.int64)
        images = np.repeat(np.arange(len(counts)), counts)
        self._pairs = np.stack([images, np.arange(len(images)) - np.repeat(np.cumsum(counts) - counts, counts)], axis=1)
        self._tokens = np.asarray(tokens, dtype=np.int64)
        self._regions = np.asarray(regions_per_image, dtype=np.int64)[images]
        self._seed = seed
        order = np.lexsort((self._tokens, self._regions))
        self._cuts = _cuts(self._tokens[order], self._regions[order], budget)

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch, the same for every epoch."""
        return len(self._cuts) - 1

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, skipping the first `start`, which a resumed run has already seen."""
        random = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(epoch,)))
        order = np.lexsort((random.random(len(self._pairs)), self._tokens, self._regions))
        spans = list(pairwise(self._cuts))
        shuffled = (spans[number] for number in random.permutation(len(spans)))
        return islice((self._pairs[order[first:end]] for first, end in shuffled), start, None)


def _cuts(tokens: _Ints, regions: _Ints, budget: int) -> list[int]:
    """Return the batch boundaries that fill the budget, both ends included, for pairs in ascending order of size."""
    if not len(tokens):
        raise DataError("there are no captions to draw batches from")
    cuts, longest, most = [0], 0, 0
    for number, (length, count) in enumerate(zip(tokens.tolist(), regions.tolist(), strict=True)):
        if length + count > budget:
            raise DataError(
                f"a caption of {length} tokens with an image of {count} regions does not fit in a batch of {budget}",
                "Raise `data.batch_tokens`.",
            )
        longest, most = max(longest, length), max(most, count)
        if (number + 1 - cuts[-1]) * (longest + most) > budget:
            cuts.append(number)
            longest, most = length, count
    return [*cuts, len(tokens)]
