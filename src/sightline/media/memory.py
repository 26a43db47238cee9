"""A memory budget shared by all threads that decode images: only large images have to wait for each other."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

DECODING_BYTES = 1 << 30
"""Maximum memory for images decoded at the same time; an image that needs more is decoded alone."""

_LARGE = 64 << 20


class ByteBudget:
    """A memory budget shared by threads. A request for more than the whole budget waits until all of it is free."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._freed = threading.Condition()
        self._own = threading.local()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Release what this thread reserved in the block when the block ends; nested scopes have no effect."""
        if getattr(self._own, "reserved", None) is not None:
            yield
            return
        self._own.reserved = 0
        try:
            yield
        finally:
            reserved, self._own.reserved = self._own.reserved, None
            if reserved >= _LARGE:
                _return_free_memory()
            if reserved:
                with self._freed:
                    self._used -= reserved
                    self._freed.notify_all()

    def reserve(self, amount: int) -> None:
        """Wait until `amount` bytes in total can be reserved for this thread; must be called in a scope."""
        more = min(amount, self.total) - self._own.reserved
        if more <= 0:
            return
        with self._freed:
            self._freed.wait_for(lambda: self._used + more <= self.total)
            self._used += more
        self._own.reserved += more


decoding = ByteBudget(DECODING_BYTES)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return the C library's function that returns free memory to the system; only glibc has one."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return trim


def _return_free_memory() -> None:
    """Return freed memory to the system; otherwise every thread would keep as much as its largest image needed."""
    trim = _trim()
    if trim is not None:
        trim(0)
