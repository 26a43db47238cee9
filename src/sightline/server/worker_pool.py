"""Thread pools by kind of request, so that slow requests delay only each other."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Generic, ParamSpec, TypeVar

from sightline.server.batcher import Batcher

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_cancelled: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)


class BusyError(Exception):
    """So many requests wait for their turn already that another would not get it in time."""


class RequestCancelledError(Exception):
    """Nobody waits for the answer any more: the client has gone, or its time was up."""


def is_cancelled() -> bool:
    """Whether nobody waits for the result of what this thread does any more."""
    event = _cancelled.get()
    return event is not None and event.is_set()


def stop_if_cancelled() -> None:
    """Raise `RequestCancelledError` if nobody waits for the result any more; call it before every long step."""
    if is_cancelled():
        raise RequestCancelledError


class WorkerPool:
    """A few threads, and a queue in front of them that has an end."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"sightline-{name}")
        self._most = threads + waiting
        self._count = 0

    async def run(self, work: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Do some work on one of the threads; when the caller is cancelled, the work is dropped or told to stop."""
        if self._count >= self._most:
            raise BusyError
        event = threading.Event()
        context = copy_context()
        context.run(_cancelled.set, event)
        try:
            future = self._pool.submit(context.run, work, *arguments, **options)  # type: ignore[arg-type]
        except RuntimeError as error:  # the pool was closed
            raise BusyError from error
        self._count += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _on(loop, self._left))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            event.set()
            raise

    def _left(self) -> None:
        self._count -= 1

    def close(self) -> None:
        """Finish what is running, and drop what is not."""
        self._pool.shutdown(cancel_futures=True)


class BatchedPool(Generic[T, R]):
    """A pool in which requests that wait together are worked on together; it has an end, too."""

    def __init__(self, batcher: Batcher[T, R], waiting: int) -> None:
        self._batcher, self._most, self._count = batcher, waiting, 0

    async def run(self, item: T) -> R:
        """Hand in an item and wait for its result; one whose caller is cancelled is dropped, unless it is running."""
        if self._count >= self._most:
            raise BusyError
        try:
            future = self._batcher.submit(item)
        except RuntimeError as error:  # the batcher was closed
            raise BusyError from error
        self._count += 1
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._count -= 1

    def close(self) -> None:
        """Finish what was handed in."""
        self._batcher.close()


def _on(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back on the loop's thread, if the loop still runs."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
