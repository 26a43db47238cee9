"""Dynamic batching: requests that are waiting at the same time run together."""

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[T, R]):
    item: T
    kind: Hashable
    size: int
    future: "Future[R]"


class Batcher(Generic[T, R]):
    """Runs a function on batches of items in its own threads; any number of other threads can submit single items.

    A lone item is run immediately. The batcher waits a few milliseconds for more only if the previous batch had
    several. Items that arrive while all threads are busy form the next batches. Each batch starts with the item that
    has waited longest, and adds the items of the same kind that are closest to it in size, because a batch is padded to
    its largest item.
    """

    def __init__(
        self,
        run: Callable[[list[T]], Sequence[R]],
        *,
        most: int,
        gather_seconds: float = 0.0,
        workers: int = 1,
        kind: Callable[[T], Hashable] = lambda item: None,
        size: Callable[[T], int] = lambda item: 0,
        note: Callable[[int], None] | None = None,
    ) -> None:
        """Start the threads.

        most: maximum batch size. kind: only items of the same kind are batched together. note: called with the size of
        each batch.
        """
        self._run, self._most, self._gather, self._note = run, most, gather_seconds, note
        self._kind, self._size = kind, size
        self._changed = threading.Condition()
        self._waiting: list[_Waiting[T, R]] = []
        self._had_company = False
        self._is_open = True
        self._threads = [
            threading.Thread(target=self._work, name=f"sightline-batch-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, item: T) -> "Future[R]":
        """Submit an item; the future receives its result, or the error of its batch. A cancelled item is not run."""
        waiting: _Waiting[T, R] = _Waiting(item, self._kind(item), self._size(item), Future())
        with self._changed:
            if not self._is_open:
                raise RuntimeError("the batcher was closed")
            self._waiting.append(waiting)
            self._changed.notify_all()
        return waiting.future

    def close(self) -> None:
        """Run everything that was submitted, then stop the threads."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._next():
            begun = [waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()]
            if begun:
                self._answer(begun)

    def _next(self) -> list[_Waiting[T, R]]:
        """Wait for the next batch and return it; empty once the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._is_open)
            if self._had_company:
                self._changed.wait_for(lambda: self._is_full() or not self._is_open, self._gather)
                self._changed.wait_for(lambda: self._waiting or not self._is_open)  # another thread may have been first
            if not self._waiting:
                return []
            batch = _alike(self._waiting, self._most)
            self._waiting = [waiting for waiting in self._waiting if waiting not in batch]
            self._had_company = len(batch) > 1
            return batch

    def _is_full(self) -> bool:
        return len(self._waiting) >= self._most

    def _answer(self, batch: list[_Waiting[T, R]]) -> None:
        if self._note:
            self._note(len(batch))
        try:
            results = self._run([waiting.item for waiting in batch])
        except BaseException as error:
            for waiting in batch:
                waiting.future.set_exception(error)
            return
        for waiting, result in zip(batch, results, strict=True):
            waiting.future.set_result(result)


def _alike(waiting: list[_Waiting[T, R]], most: int) -> list[_Waiting[T, R]]:
    """Return the first item, and the items of the same kind that are closest to it in size; at most `most` in total."""
    first = waiting[0]
    company = [other for other in waiting[1:] if other.kind == first.kind]
    return [first, *sorted(company, key=lambda other: abs(other.size - first.size))][:most]
