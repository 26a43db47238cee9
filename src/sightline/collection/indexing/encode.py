"""Encode files in batches, in threads of this process, and write the results."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from sightline.bundle import Model
from sightline.collection.indexing.batches import at_once, content_count, encoded, is_new
from sightline.collection.indexing.commits import CommitQueue, commit_queue, threads
from sightline.collection.indexing.readers import Outcome, vanished_file
from sightline.collection.indexing.writer import EncodedBatch, Writer
from sightline.retrieval.query import ItemKind

IndexProgress = Callable[[int, int], None]
"""Called with the number of files done and the total."""

_MOST_ENCODERS = 16
_WORTH_A_GPU: dict[ItemKind, int] = {"images": 500, "texts": 5000}  # with fewer, the CPU finishes before a GPU is ready
_COMMIT_FILES = 512


def encode(
    outcomes: Iterable[Outcome],
    total: int,
    writer: Writer,
    model: Model,
    known: set[bytes],
    progress: IndexProgress | None = None,
) -> None:
    """Encode all new contents and write the results, then delete missing files.

    known: hashes of all contents so far; new ones are added.
    """
    if total >= _WORTH_A_GPU[writer.report.kind]:
        model = model.prefer_gpu()
    encoders = min(model.concurrency, _MOST_ENCODERS)
    with commit_queue(writer) as commits, threads("sightline-encode", encoders) as encoding:
        run = _Run(commits, model, known, encoding, most=2 * encoders)
        for outcome in outcomes:
            run.take(outcome)
            if progress:
                progress(run.done, total)
        run.finish()
    if progress:
        progress(total, total)


@dataclass(slots=True)
class _Run:
    """The state of a run: outcomes collected in `files`, batches being encoded in `sent`, and writes in `commits`.

    Batches stay in order, so that a copy is never written before the file whose content it shares. At most `most`
    batches are encoded at once.
    """

    commits: CommitQueue
    model: Model
    known: set[bytes]
    encoding: ThreadPoolExecutor
    most: int
    files: list[Outcome] = field(default_factory=list)
    new: list[Outcome] = field(default_factory=list)
    sent: deque[Future[EncodedBatch]] = field(default_factory=deque)
    done: int = 0

    def take(self, outcome: Outcome) -> None:
        report = self.commits.report
        report.read += 1
        if outcome.gone:
            report.skipped.append(vanished_file(outcome))
            self.done += 1
            return
        if is_new(outcome, self.known):
            self.new.append(outcome)
        self.files.append(replace(outcome, payload=None))
        if content_count(self.new) >= at_once(self.model, report.kind) or len(self.files) >= _COMMIT_FILES:
            self._send()
        if self.commits.is_due():
            self._write()

    def finish(self) -> None:
        self._send()
        self._receive(0)
        self.commits.finish()

    def _send(self) -> None:
        self.sent.append(self.encoding.submit(encoded, self.model, self.new, self.files))
        self.new, self.files = [], []
        self._receive(self.most)

    def _receive(self, at_most: int) -> None:
        """Take finished batches, waiting until at most this many are still being encoded."""
        while self.sent and (len(self.sent) > at_most or self.sent[0].done()):
            received = self.sent.popleft().result()
            self.commits.take(received)
            self.done += len(received.files)

    def _write(self) -> None:
        if not self.sent and self.files:
            self._send()
        self._receive(self.most)
        self.commits.write()
