"""Captioned images that are read file by file and shuffled in a buffer, for data sets too large to list."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from sightline.datasets.formats import READERS, Reader, format_of
from sightline.datasets.paths import files_of
from sightline.datasets.reader import own_reader
from sightline.datasets.record import Record, refuse
from sightline.datasets.sampler import Batch, DrawRule
from sightline.errors import DataError
from sightline.plugins import READER_PREFIX

T = TypeVar("T")
AfterFile = Callable[[int], None]
"""Called with the number of files read so far."""
_Item = tuple[Record, int]  # a record, and the number of one of its captions


class RecordStream:
    """The training records of some data sets, reread in every epoch; only one file is open at a time.

    paths: data sets, as for `read`. Records of a split other than train are left out. Keys are not checked for
    duplicates, as that would mean keeping all of them.
    prepare: called with every record; returns the record, a replacement, or None to leave it out.
    """

    def __init__(self, paths: Sequence[str], prepare: Callable[[Record], Record | None] | None = None) -> None:
        self.paths, self._prepare = tuple(paths), prepare
        self.files: list[tuple[Path, Reader]] = []
        for path in paths:
            if path.startswith(READER_PREFIX):
                self.files.append(own_reader(path))
            else:
                self.files += [(file, READERS[format_of(file)]) for file in files_of(path)]

    def records(self, order: Iterable[int] | None = None, after_file: AfterFile | None = None) -> Iterator[Record]:
        """Yield the records, file by file.

        order: the indices of the files to read, in this order; by default all.
        """
        for done, number in enumerate(range(len(self.files)) if order is None else order, 1):
            file, reader = self.files[number]
            for record in reader(file, None, refuse):
                if record.captions and record.split in (None, "train"):
                    found = record if self._prepare is None else self._prepare(record)
                    if found is not None:
                        yield found
            if after_file is not None:
                after_file(done)

    def sample(self, count: int) -> list[Record]:
        """Return the first `count` records, from further files if the first has too few."""
        found = list(islice(self.records(), count))
        if not found:
            raise DataError(
                f"{', '.join(self.paths)}: no captioned images to train on",
                "Records in splits other than train are left out.",
            )
        return found


class StreamBatch(NamedTuple):
    """A batch of a stream: its distinct records, and pairs [n, 2] of a record index and a caption index."""

    records: list[Record]
    pairs: Batch


class StreamSampler:
    """Draws the batches of an epoch from a stream. In an epoch, every item but the last few is in exactly one batch.

    Files are read in a different order in each epoch. Their items (captions or, for draw "one" and "all", images) then
    pass through a buffer: each place in a batch gets a random item from the buffer, where the next item of the stream
    replaces it. The same seed and epoch give the same batches. A last batch that would not be full is left out.

    captions: returns the number of captions of a record.
    """

    def __init__(
        self,
        stream: RecordStream,
        captions: Callable[[Record], int],
        batch_size: int,
        *,
        draw: DrawRule = "unique",
        buffer: int = 10_000,
        seed: int = 0,
    ) -> None:
        self._stream, self._captions, self._draw = stream, captions, draw
        self._batch_size, self._buffer, self._seed = batch_size, buffer, seed

    def count(self, after_file: AfterFile | None = None) -> int:
        """Count the batches of an epoch, by reading the whole stream once."""
        records = self._stream.records(after_file=after_file)
        items = sum(1 if self._by_image else self._captions(record) for record in records)
        return self._checked(items)

    def batches(self, epoch: int) -> Iterator[StreamBatch]:
        """Yield the batches of one epoch."""
        chance = random.Random(f"{self._seed} {epoch}")
        order = list(range(len(self._stream.files)))
        chance.shuffle(order)
        items = buffer_shuffled(self._items(order, chance), self._buffer, chance)
        drawn = (_batched if self._draw == "pairs" else _without_repeats)(items, self._batch_size)
        is_empty = True
        for batch in drawn:
            is_empty = False
            yield self._stacked(batch)
        if is_empty:
            self._checked(0)

    @property
    def _by_image(self) -> bool:
        return self._draw in ("one", "all")

    def _items(self, order: Sequence[int], chance: random.Random) -> Iterator[_Item]:
        for record in self._stream.records(order):
            count = self._captions(record)
            if self._draw == "one":
                yield record, chance.randrange(count)
            elif self._draw == "all":
                yield record, 0
            else:
                yield from ((record, caption) for caption in range(count))

    def _stacked(self, batch: Sequence[_Item]) -> StreamBatch:
        places: dict[int, int] = {}
        records: list[Record] = []
        pairs: list[tuple[int, int]] = []
        for record, caption in batch:
            if id(record) not in places:
                places[id(record)] = len(records)
                records.append(record)
            place = places[id(record)]
            captions = range(self._captions(record)) if self._draw == "all" else (caption,)
            pairs += [(place, number) for number in captions]
        return StreamBatch(records, np.array(pairs, dtype=np.int64))

    def _checked(self, items: int) -> int:
        if items < self._batch_size:
            what = "pictures with captions" if self._by_image else "captions"
            raise DataError(
                f"batches of {self._batch_size} cannot be drawn from {', '.join(self._stream.paths)}: too few {what}",
                "Lower the batch size (in a recipe, data.batch_size).",
            )
        return items // self._batch_size


def buffer_shuffled(items: Iterable[T], size: int, chance: random.Random) -> Iterator[T]:
    """Yield items in a random order, holding at most `size` of them at a time."""
    held: list[T] = []
    for item in items:
        if len(held) < size:
            held.append(item)
            continue
        place = chance.randrange(size)
        yield held[place]
        held[place] = item
    chance.shuffle(held)
    yield from held


def _batched(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    while len(batch := list(islice(items, size))) == size:
        yield batch


def _without_repeats(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield batches in which no image occurs twice: its other captions wait for later batches."""
    waiting: list[_Item] = []
    while True:
        batch: dict[int, _Item] = {}
        later: list[_Item] = []
        for item in waiting:
            if len(batch) < size and id(item[0]) not in batch:
                batch[id(item[0])] = item
            else:
                later.append(item)
        while len(batch) < size:
            found = next(items, None)
            if found is None:
                return
            if id(found[0]) in batch:
                later.append(found)
            else:
                batch[id(found[0])] = found
        waiting = later
        yield list(batch.values())
