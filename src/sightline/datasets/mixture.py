"""Batches from several sources in fixed shares; each comes from one source and depends only on seed and step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sightline.datasets.sampler import Batch

_WINDOW = 8  # steps shuffled among themselves, so that sources do not alternate in a fixed pattern


class EpochSampler(Protocol):
    """Yields the batches of one source, epoch by epoch."""

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        ...

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, skipping the first `start`."""
        ...


@dataclass(frozen=True, slots=True)
class MixtureSource:
    """One source of a mixture.

    share: its share of the steps, relative to the other sources.
    first_image: the index of its first image among the images of all sources.
    """

    sampler: EpochSampler
    share: float = 1.0
    first_image: int = 0


class MixtureBatch(NamedTuple):
    """A batch, its step, and the index of its source. Image indices count the images of all sources."""

    step: int
    source: int
    pairs: Batch


class Mixture:
    """Interleaves the batches of several sources.

    After any number of steps, every source has had its share of them to within a few steps. Each source counts its
    own epochs. `seed` determines the order of the sources, and seed and step determine the batch, so a run can resume
    at any step.

    >>> from sightline.datasets import Sampler
    >>> sources = [MixtureSource(Sampler([1] * 6, 2), 0.75), MixtureSource(Sampler([1] * 4, 2), 0.25, first_image=6)]
    >>> mixture = Mixture(sources, seed=0)
    >>> [int(count) for count in np.bincount(mixture.order(400))]
    [300, 100]
    >>> [batch.step for batch in mixture.batches(10, 13)]
    [10, 11, 12]
    """

    def __init__(self, sources: Sequence[MixtureSource], seed: int = 0) -> None:
        if not sources or any(source.share <= 0 for source in sources):
            raise ValueError("a mixture needs at least one source, and shares above 0")
        self.sources = tuple(sources)
        self._seed = seed

    def order(self, steps: int) -> Batch:
        """Return the source index of every step, [steps]."""
        return interleaved([source.share for source in self.sources], steps, self._seed)

    def batches(self, start: int, end: int) -> Iterator[MixtureBatch]:
        """Yield the batches of steps `start` to `end` - 1."""
        order = self.order(end)
        taken = np.bincount(order[:start], minlength=len(self.sources))
        running = [_endless(source.sampler, int(count)) for source, count in zip(self.sources, taken, strict=True)]
        for step, number in enumerate(order[start:].tolist(), start):
            pairs = next(running[number])
            first = self.sources[number].first_image
            yield MixtureBatch(step, number, pairs + np.array([first, 0]) if first else pairs)


def interleaved(shares: Sequence[float], steps: int, seed: int) -> Batch:
    """Return the source index of every step, [steps], in the given shares; more steps only extend the order."""
    if len(shares) == 1:
        return np.zeros(steps, dtype=np.int64)
    windows = -(-steps // _WINDOW)
    chosen = np.empty(windows * _WINDOW, dtype=np.int64)
    behind, relative = np.zeros(len(shares)), np.array(shares) / sum(shares)
    for step in range(len(chosen)):
        behind += relative
        chosen[step] = source = int(behind.argmax())
        behind[source] -= 1
    for number, window in enumerate(chosen.reshape(windows, _WINDOW)):
        np.random.default_rng([seed, number]).shuffle(window)
    return chosen[:steps]


def _endless(sampler: EpochSampler, start: int) -> Iterator[Batch]:
    """Yield the batches of a source endlessly, epoch after epoch, starting at batch `start`."""
    epoch, first = divmod(start, sampler.batches_per_epoch)
    while True:
        yield from sampler.batches(epoch, start=first)
        epoch, first = epoch + 1, 0
