"""One memory budget for all threads that decode images: large images wait for each other, small ones do not."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

DECODING_BYTES = 1 << 30
"""Memory that images being decoded may take together; a larger one is decoded alone."""

_LARGE = 64 << 20


class ByteBudget:
    """Bytes that threads share. A request for more than the whole budget waits until nobody else has any."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._freed = threading.Condition()
        self._own = threading.local()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back at the end what this thread reserves inside; a scope inside another changes nothing."""
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
        """Wait until there is room for so many bytes in all; only inside a scope."""
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
    """The function of the C library that returns free memory to the system; only glibc has one."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return trim


def _return_free_memory() -> None:
    """Return the memory of large images: otherwise every thread keeps as much as its largest image took."""
    trim = _trim()
    if trim is not None:
        trim(0)
