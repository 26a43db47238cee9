"""Limits on connections: their number, and the time to receive a request and to send a response."""

import asyncio
import sys
from collections import Counter
from enum import IntEnum
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.server.limits import Limits

_SWEEP_SECONDS = 1.0
_STOP_CHECK_SECONDS = 0.1
_WANTED_FILES = 4096
_OTHER_FILES = 256  # file descriptors reserved for other purposes


class Connections:
    """The open connections of a server.

    If there are too many, in total or from one address, one that waits for its client is closed: the least `Worth`,
    and among equals the one whose client has been silent for longest. A new connection is refused only if all others
    are being answered.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: set[LimitedProtocol] = set()
        self._by_address: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: object) -> bool:
        return connection in self._open

    def add(self, connection: "LimitedProtocol") -> None:
        """Register a new connection; if there are too many, close another one, or this one if all others are in use."""
        self._open.add(connection)
        self._by_address[connection.address] += 1
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(_SWEEP_SECONDS, self._sweep)
        if self._by_address[connection.address] > self.limits.connections_per_address:
            self._make_room(connection, [one for one in self._open if one.address == connection.address])
        elif len(self._open) > self.limits.connections:
            self._make_room(connection, list(self._open))

    def discard(self, connection: "LimitedProtocol") -> None:
        """Remove a closed connection."""
        if connection in self._open:
            self._open.discard(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def _make_room(self, new: "LimitedProtocol", among: list["LimitedProtocol"]) -> None:
        waiting = [one for one in among if one is not new and (one.is_waiting or one.is_uploading)]
        victim = min(waiting, key=lambda one: (one.worth(self.limits), one.heard_at), default=new)
        self.discard(victim)
        victim.transport.abort()

    def _sweep(self) -> None:
        """Close the connections of clients that take too long."""
        self._sweeping = None
        for connection in list(self._open):
            if connection.is_overdue(self.limits):
                self.discard(connection)
                connection.transport.abort()
        for connection in self._open:
            self._sweeping = connection.loop.call_later(_SWEEP_SECONDS, self._sweep)
            return


class Worth(IntEnum):
    """How much is lost if a connection that waits for its client is closed.

    A client that has just been active is likely to go on, and loses the most if it has sent part of a body.
    """

    STALLED = 0  # part of a request, and then silence
    SILENT = 1  # no request, and silence
    CONNECTED = 2  # no complete headers yet
    ANSWERED = 3  # a response a moment ago
    UPLOADING = 4


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 for one connection, which is closed if its client is too slow."""

    registry: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.is_idle = False  # whether the client got a response and has sent nothing since
        self.waits_since = self.writes_since = self.heard_at = self.loop.time()
        self.registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self.registry.discard(self)
        super().connection_lost(exc)

    @property
    def is_waiting(self) -> bool:
        """Whether the client has not yet sent complete request headers."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_uploading(self) -> bool:
        """Whether the client has sent the headers of a request, but not yet all of its body."""
        return not self.is_waiting and self.cycle.more_body

    def worth(self, limits: Limits) -> Worth:
        """Return how much is lost if this connection, which waits for its client, is closed."""
        is_between_requests = self.is_waiting and self.is_idle
        if self.loop.time() - self.heard_at > limits.stall_seconds:
            return Worth.SILENT if is_between_requests else Worth.STALLED
        if is_between_requests:
            return Worth.ANSWERED
        return Worth.CONNECTED if self.is_waiting else Worth.UPLOADING

    def data_received(self, data: bytes) -> None:
        """Receive data; the time limit for the headers of a request starts at its first byte."""
        self.heard_at = self.loop.time()
        if self.is_waiting and self.is_idle:
            self.is_idle = False
            self.waits_since = self.heard_at
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Mark the connection as idle until the next request."""
        self.is_idle = True
        self.waits_since = self.heard_at = self.loop.time()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Finish the request in progress before the server stops, unless its client is slow."""
        super().shutdown()
        self._stop_within(self.registry.limits.stop_seconds)

    def _stop_within(self, seconds: float) -> None:
        """Close the connection once the server has waited this long for its client; computing does not count."""
        if self not in self.registry:
            return
        if seconds <= 0:
            self.transport.abort()
            return
        is_computing = not (self.is_waiting or self.is_uploading or self.cycle.response_started)
        left = self.registry.limits.stop_seconds if is_computing else seconds - _STOP_CHECK_SECONDS
        self.loop.call_later(_STOP_CHECK_SECONDS, self._stop_within, left)

    def is_overdue(self, limits: Limits) -> bool:
        """Return whether the client has taken too long to send request headers or to read a response."""
        now = self.loop.time()
        if not (self.is_waiting or self.transport.is_closing()) or not self.transport.get_write_buffer_size():
            self.writes_since = now
        if now - self.writes_since > limits.write_seconds:
            return True
        return self.is_waiting and not self.is_idle and now - self.waits_since > limits.header_seconds


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """Return the protocol class for a server whose connections share these limits."""
    members: dict[str, Any] = {"registry": Connections(limits)}
    return type("LimitedProtocol", (LimitedProtocol,), members)


def allowed_connections(limits: Limits) -> int:
    """Return the maximum number of connections, limited by the number of open files that the system allows."""
    if sys.platform == "win32":
        return limits.connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return (
        limits.connections if soft == resource.RLIM_INFINITY else min(limits.connections, max(16, soft - _OTHER_FILES))
    )
