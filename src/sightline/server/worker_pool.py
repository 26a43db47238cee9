"""Thread pools by kind of request, so that slow requests delay only each other."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, runtime_checkable

from sightline.server.batcher import Batcher

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_cancelled: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)


class BusyError(Exception):
    """So many requests are waiting that another one could not be answered in time."""


class RequestCancelledError(Exception):
    """The request was cancelled: the client disconnected, or its time was up."""


def is_cancelled() -> bool:
    """Return whether the request that this thread is working on was cancelled."""
    event = _cancelled.get()
    return event is not None and event.is_set()


def stop_if_cancelled() -> None:
    """Raise `RequestCancelledError` if the request was cancelled; call it before every long step."""
    if is_cancelled():
        raise RequestCancelledError


@runtime_checkable
class Closable(Protocol):
    """Anything that can be closed, such as an open file."""

    def close(self) -> None:
        """Release what it holds open."""
        ...


class WorkerPool:
    """A few threads with a bounded queue."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"sightline-{name}")
        self._most = threads + waiting
        self._count = 0

    async def run(self, work: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run work in one of the threads; if the caller is cancelled, drop the work or, if running, tell it to stop."""
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
            future.add_done_callback(_close_result)
            raise

    def _left(self) -> None:
        self._count -= 1

    def close(self) -> None:
        """Finish work in progress, and drop the rest."""
        self._pool.shutdown(cancel_futures=True)


def _close_result(future: Future[Any]) -> None:
    """Close the files in a result that no caller is waiting for any more."""
    if not future.cancelled() and future.exception() is None:
        result = future.result()
        for part in result if isinstance(result, tuple) else (result,):
            if isinstance(part, Closable):
                part.close()


class BatchedPool(Generic[T, R]):
    """A pool with a bounded queue that batches waiting requests."""

    def __init__(self, batcher: Batcher[T, R], waiting: int) -> None:
        self._batcher, self._most, self._count = batcher, waiting, 0

    async def run(self, item: T) -> R:
        """Submit an item and wait for its result; if the caller is cancelled, the item is dropped unless running."""
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
        """Finish everything that was submitted."""
        self._batcher.close()


def _on(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run a callback on the loop's thread, unless the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
