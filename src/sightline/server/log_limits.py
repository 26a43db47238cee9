"""Limit what clients can make the server write to its log."""

import logging
import time
from collections.abc import Callable

LOGGERS = ("asyncio", "uvicorn.error", "sightline.server")


class LogLimit(logging.Filter):
    """Lets each message through a few times a minute, however often it is logged, and reports how many were dropped."""

    def __init__(self, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record. Messages with the same format string count as the same."""
        key, now = (record.name, str(record.msg)[:200]), self._clock()
        since, count = self._counts.get(key, (now, 0))
        if now - since > self._seconds:
            if count > self._most:
                record.msg = f"{record.msg} ({count - self._most} more like this were not logged)"
            since, count = now, 0
        self._counts = self._counts if len(self._counts) < 1_000 else {}
        self._counts[key] = since, count + 1
        return count < self._most


def limit_logs() -> None:
    """Limit the logs of the server and its libraries."""
    limit = LogLimit()
    for name in (*LOGGERS, *(name for name in logging.root.manager.loggerDict if name.startswith("sightline.server."))):
        logger = logging.getLogger(name)
        if not any(isinstance(one, LogLimit) for one in logger.filters):
            logger.addFilter(limit)
