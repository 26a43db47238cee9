"""The batches of a run with streamed data: read file by file, shuffled in a buffer, never all in memory."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record, captions_in_any
from sightline.datasets.mixture import interleaved
from sightline.datasets.stream import RecordStream, StreamBatch, StreamSampler
from sightline.training.captions import CaptionTable
from sightline.training.corpus import PrepareReport
from sightline.training.data_tables import SourceRecipe
from sightline.training.decoding import Decoder
from sightline.training.distributed import World
from sightline.training.mixture import SEEDS_APART, StepBatch, check_labels
from sightline.training.recipe import Recipe
from sightline.training.same_rows import SameRule
from sightline.training.setup import captioner
from sightline.training.state import saved_tensors

PREFIX = "stream/"
"""The prefix, in the saved state, of the names of the sources' positions."""


def open_streams(recipe: Recipe) -> list[RecordStream]:
    """Return the training records of each source of a recipe, as streams."""
    return [RecordStream(source.train, _prepared(source)) for source in recipe.data.mixture]


def _prepared(source: SourceRecipe) -> Callable[[Record], Record | None]:
    captioned = captioner(source)

    def prepare(record: Record) -> Record | None:
        return None if record.label in source.skip_labels else captioned(record)

    return prepare


class StreamedBatches:
    """The batches of every step, determined by seed and step.

    Every process draws the same batches, from the names and captions of all records, and decodes only its own share of
    their images. So the batches do not depend on the number of processes, and a resumed run continues with the next
    batch, provided the files have not changed: it rereads the captions of the current epoch up to that batch.
    """

    def __init__(
        self,
        recipe: Recipe,
        streams: Sequence[RecordStream],
        samples: Sequence[Sequence[Record]],
        tokenizer: Tokenizer,
        decoder: Decoder,
        world: World,
        saved: Path | None = None,
        on_prepare: PrepareReport | None = None,
    ) -> None:
        self._recipe, self._streams, self._sources = recipe, streams, recipe.data.mixture
        self._tokenizer, self._decoder, self._world, self._on_prepare = tokenizer, decoder, world, on_prepare
        self._rules = [SameRule.of(source) for source in self._sources]
        for source, records in zip(self._sources, samples, strict=True):
            check_labels(source, records)
        self._samplers = [
            StreamSampler(
                stream,
                self._captions,
                source.batch_size,
                draw=source.draw or recipe.data.draw,
                buffer=recipe.data.shuffle_buffer,
                seed=recipe.seed + number * SEEDS_APART,
            )
            for number, (source, stream) in enumerate(zip(self._sources, streams, strict=True))
        ]
        positions = {} if saved is None else saved_tensors(saved, PREFIX)
        begun = [positions.get(source.name, torch.zeros(2)).tolist() for source in self._sources]
        self._epochs = [[(int(first), int(epoch))] for first, epoch in begun]

    @cached_property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch, counted by reading all captions once."""
        passes = [source.passes or 1.0 for source in self._sources]
        return max(1, round(sum(n * size for n, size in zip(passes, self._sizes, strict=True))))

    @cached_property
    def _sizes(self) -> list[int]:
        """The number of batches of each source."""
        total, done, sizes = sum(len(stream.files) for stream in self._streams), 0, []
        for sampler, stream in zip(self._samplers, self._streams, strict=True):
            report = None
            if self._on_prepare is not None:
                report = partial(_report_files, self._on_prepare, done, total)
            sizes.append(sampler.count(report))
            done += len(stream.files)
        return sizes

    @cached_property
    def _shares(self) -> list[float]:
        if len(self._sources) == 1:
            return [1.0]
        if all(source.share for source in self._sources):
            return [source.share for source in self._sources]
        return [(source.passes or 1.0) * size for source, size in zip(self._sources, self._sizes, strict=True)]

    def between(self, start: int, end: int) -> Iterator[StepBatch]:
        """Yield the batches of steps `start` to `end` - 1, with their images already being decoded."""
        order = interleaved(self._shares, end, self._recipe.seed)
        taken = np.bincount(order[:start], minlength=len(self._sources)).tolist()
        running = [self._endless(number, count) for number, count in enumerate(taken)]
        for step, number in enumerate(order[start:].tolist(), start):
            yield self._drawn(step, number, next(running[number]))

    def position(self, step: int) -> dict[str, Tensor]:
        """Tensors to save with the state of a run: for each source, its epoch's first batch and the epoch."""
        order = interleaved(self._shares, step, self._recipe.seed)
        taken = np.bincount(order, minlength=len(self._sources)).tolist()
        found = {}
        for source, count, epochs in zip(self._sources, taken, self._epochs, strict=True):
            place = bisect_right([first for first, _ in epochs], count) - 1
            found[f"{PREFIX}{source.name}"] = torch.tensor(epochs[place])
        return found

    def _endless(self, number: int, taken: int) -> Iterator[StreamBatch]:
        """Yield the batches of a source without end, epoch after epoch, from batch `taken` on."""
        epochs = self._epochs[number]
        place = bisect_right([first for first, _ in epochs], taken) - 1
        del epochs[place + 1 :]
        count, epoch = epochs[-1]
        while True:
            for batch in self._samplers[number].batches(epoch):
                if count >= taken:
                    yield batch
                count += 1
            epoch += 1
            epochs.append((count, epoch))

    def _captions(self, record: Record) -> int:
        return len(captions_in_any(record, self._recipe.data.lang))

    def _drawn(self, step: int, number: int, batch: StreamBatch) -> StepBatch:
        table = CaptionTable(batch.records, self._recipe.data.lang, self._tokenizer)
        drawn = table.draw(batch.pairs, self._rules[number])
        own = batch.records[self._world.share(len(batch.records))]
        return StepBatch(step, self._sources[number].name, replace(drawn, decoding=self._decoder.start(own)))


def _report_files(report: PrepareReport, before: int, total: int, done: int) -> None:
    report("counting captions, by file", before + done, total)
