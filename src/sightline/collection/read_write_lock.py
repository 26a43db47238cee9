"""Many at once, or one alone: searches share a collection, and what changes its open files waits for them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Sharing:
    """Lets any number of threads in together, or one thread alone, who need not wait for those who came later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._alone = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Be there with others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until everybody has left, and let nobody in."""
        with self._changed:
            self._alone += 1
            try:
                self._changed.wait_for(lambda: not self._together)
                yield
            finally:
                self._alone -= 1
                self._changed.notify_all()
