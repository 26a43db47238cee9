"""What was read goes to the model in batches, and from there to the disk every few seconds."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.bundle import Bundle, Encoded, Model
from sightline.collection.manifest import Kind
from sightline.collection.reading import Outcome
from sightline.collection.report import Problem
from sightline.collection.writing import Batch, Writer
from sightline.media.loading import usable_cpus

Progress = Callable[[int, int], None]
"""Told how many of the files to be read are done, and how many there are."""

_AT_ONCE: dict[Kind, int] = {"images": 4, "texts": 32}
_MOST_ENCODERS = 16
_COMMIT_SECONDS = 2.0
_COMMIT_FILES = 512


def encode(
    outcomes: Iterable[Outcome],
    total: int,
    writer: Writer,
    model: Model,
    known: set[bytes],
    progress: Progress | None = None,
) -> None:
    """Encode every content that is not known and write everything that was read, then delete what is gone.

    known: the hashes of all contents so far; those that are encoded are added.

    Only one thread of its own writes. Ctrl-C, which Python raises in the main thread, thus never interrupts a write
    halfway: leaving this function waits until the last one is whole.
    """
    encoders = min(usable_cpus(), _MOST_ENCODERS) if isinstance(model, Bundle) else 1
    with _threads("sightline-encode", encoders) as encoding, _threads("sightline-write", 1) as writing:
        run = _Run(writer, model, known, encoding, writing, most=2 * encoders)
        for outcome in outcomes:
            run.take(outcome)
            if progress:
                progress(run.done, total)
        run.finish()
    if progress:
        progress(total, total)


def for_many(model: Model) -> Model:
    """The same model, ready to encode several batches at once with one thread each, where it can.

    Threads that share a batch wait for each other at every layer, and burn processor time while they do.
    """
    return Bundle(model.folder, model.spec, threads=1) if isinstance(model, Bundle) else model


@contextmanager
def _threads(name: str, count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that end with what they have begun; what they have not begun is dropped."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class _Run:
    """Outcomes on their way: gathered in `files`, being encoded in `sent`, encoded and to be written in `batch`.

    They are sent, received and written in the order they came in, so that a copy is never written before the content
    that it shares. At most `most` batches are sent at once.
    """

    writer: Writer
    model: Model
    known: set[bytes]
    encoding: ThreadPoolExecutor
    writing: ThreadPoolExecutor
    most: int
    files: list[Outcome] = field(default_factory=list)
    new: list[Outcome] = field(default_factory=list)
    sent: deque[Future[Batch]] = field(default_factory=deque)
    batch: Batch = field(default_factory=Batch)
    written: Future[None] | None = None
    began: float = field(default_factory=time.monotonic)
    done: int = 0

    def take(self, outcome: Outcome) -> None:
        report = self.writer.report
        report.read += 1
        if outcome.gone:
            report.skipped.append(Problem(outcome.found.name, "vanished while indexing"))
            self.done += 1
            return
        if outcome.payload is not None and outcome.facts and outcome.facts.hash not in self.known:
            self.known.add(outcome.facts.hash)
            self.new.append(outcome)
        self.files.append(replace(outcome, payload=None))
        if len(self.new) >= _AT_ONCE[report.kind] or len(self.files) >= _COMMIT_FILES:
            self._send()
        if time.monotonic() - self.began >= _COMMIT_SECONDS:
            self._write()

    def finish(self) -> None:
        self._send()
        self._receive(0)
        self._write()
        self._settle()
        self.writing.submit(self.writer.finish).result()

    def _send(self) -> None:
        self.sent.append(self.encoding.submit(_encoded, self.model, self.new, self.files))
        self.new, self.files = [], []
        self._receive(self.most)

    def _receive(self, at_most: int) -> None:
        """Take what is encoded, and wait until at most so many are still being encoded."""
        while self.sent and (len(self.sent) > at_most or self.sent[0].done()):
            received = self.sent.popleft().result()
            self.batch.add(received)
            self.done += len(received.files)

    def _write(self) -> None:
        """Begin to write what is encoded, once the write before is done; encoding goes on meanwhile."""
        if not self.sent and self.files:
            self._send()
        self._receive(self.most)
        self._settle()
        if self.batch.files:
            self.written = self.writing.submit(self.writer.write, self.batch)
        self.batch, self.began = Batch(), time.monotonic()

    def _settle(self) -> None:
        if self.written is not None:
            self.written.result()
        self.written = None


def _encoded(model: Model, new: Sequence[Outcome], files: list[Outcome]) -> Batch:
    """A batch to be written: files, and the vectors of those whose content is new. Infinite ones are left out."""
    if not new:
        return Batch([], files)
    payloads: list[Any] = [outcome.payload for outcome in new]
    is_texts = isinstance(payloads[0], str)
    encoded = model.encode_texts(payloads) if is_texts else model.encode_images(np.stack(payloads))
    finite: npt.NDArray[np.bool_] = np.isfinite(encoded.embedding).all(axis=1)  # type: ignore[assignment]
    facts = [outcome.facts for outcome, fine in zip(new, finite, strict=True) if fine and outcome.facts]
    truncated = 0 if encoded.truncated is None else int(encoded.truncated.sum())
    return Batch([(facts, encoded if finite.all() else _rows(encoded, finite))] if facts else [], files, truncated)


def _rows(encoded: Encoded, chosen: npt.NDArray[np.bool_]) -> Encoded:
    return Encoded(
        encoded.embedding[chosen],
        encoded.mask[chosen],
        None if encoded.fragments is None else encoded.fragments[chosen],
        None if encoded.states is None else encoded.states[chosen],
    )
