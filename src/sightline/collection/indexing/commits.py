"""Write batches to disk every few seconds, while the next ones are encoded."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sightline.collection.indexing.report import Report
from sightline.collection.indexing.writer import EncodedBatch, Writer

_COMMIT_SECONDS = 2.0
_COMMIT_IMAGE_BYTES = 64 * 2**20


class CommitQueue:
    """Collects batches and writes them at intervals, in order.

    A separate thread writes, so Ctrl-C, which Python raises in the main thread, never interrupts a write: leaving
    `commit_queue` waits until the write is complete.
    """

    def __init__(self, writer: Writer, writing: ThreadPoolExecutor) -> None:
        self._writer = writer
        self._writing = writing
        self._batch = EncodedBatch()
        self._written: Future[None] | None = None
        self._began = time.monotonic()
        self._image_bytes = 0

    @property
    def report(self) -> Report:
        """The report of the run."""
        return self._writer.report

    def take(self, batch: EncodedBatch) -> None:
        """Add a batch to the next write."""
        self._batch.add(batch)
        self._image_bytes += sum(len(file.stored_image) for file in batch.files)

    def is_due(self) -> bool:
        """Return whether it is time to write."""
        return time.monotonic() - self._began >= _COMMIT_SECONDS or self._image_bytes >= _COMMIT_IMAGE_BYTES

    def write(self) -> None:
        """Start writing the collected batches, after the previous write has finished."""
        self._settle()
        if self._batch.files:
            self._written = self._writing.submit(self._writer.write, self._batch)
        self._batch, self._began, self._image_bytes = EncodedBatch(), time.monotonic(), 0

    def finish(self) -> None:
        """Write the remaining batches, then delete missing files from the collection."""
        self.write()
        self._settle()
        self._writing.submit(self._writer.finish).result()

    def _settle(self) -> None:
        if self._written is not None:
            self._written.result()
        self._written = None


@contextmanager
def commit_queue(writer: Writer) -> Iterator[CommitQueue]:
    """A queue of batches; on exit, waits for the write in progress and drops the rest."""
    with threads("sightline-write", 1) as writing:
        yield CommitQueue(writer, writing)


@contextmanager
def threads(name: str, count: int) -> Iterator[ThreadPoolExecutor]:
    """A thread pool that, on exit, finishes running tasks and drops those that have not started."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
