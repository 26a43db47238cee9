"""Batches on their way to the disk, written every few seconds while the next ones are made."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sightline.collection.indexing.report import Report
from sightline.collection.indexing.writer import Batch, Writer

_COMMIT_SECONDS = 2.0


class CommitQueue:
    """Gathers batches and writes them at intervals, in the order in which they came.

    Only one thread of its own writes. Ctrl-C, which Python raises in the main thread, thus never interrupts a write
    halfway: leaving `commit_queue` waits until the last one is whole.
    """

    def __init__(self, writer: Writer, writing: ThreadPoolExecutor) -> None:
        self._writer = writer
        self._writing = writing
        self._batch = Batch()
        self._written: Future[None] | None = None
        self._began = time.monotonic()

    @property
    def report(self) -> Report:
        """What is counted of the run."""
        return self._writer.report

    def take(self, batch: Batch) -> None:
        """Add a batch to what is written next."""
        self._batch.add(batch)

    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._began >= _COMMIT_SECONDS

    def write(self) -> None:
        """Begin to write what was taken, once the write before is done."""
        self._settle()
        if self._batch.files:
            self._written = self._writing.submit(self._writer.write, self._batch)
        self._batch, self._began = Batch(), time.monotonic()

    def finish(self) -> None:
        """Write all that is left, then delete what is gone."""
        self.write()
        self._settle()
        self._writing.submit(self._writer.finish).result()

    def _settle(self) -> None:
        if self._written is not None:
            self._written.result()
        self._written = None


@contextmanager
def commit_queue(writer: Writer) -> Iterator[CommitQueue]:
    """Give what writes batches; whoever leaves waits for the write that has begun, and drops what has not."""
    with threads("sightline-write", 1) as writing:
        yield CommitQueue(writer, writing)


@contextmanager
def threads(name: str, count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that end with what they have begun; what they have not begun is dropped."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
