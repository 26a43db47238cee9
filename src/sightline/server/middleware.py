"""Middleware for every request: access control, size and time limits, metrics."""

import asyncio
import logging
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sightline.server.access import AccessControl
from sightline.server.bodies import BodyMemory, BodyReader, ClientGoneError, Take
from sightline.server.limits import Limits
from sightline.server.metrics import Metrics
from sightline.server.problems import RefusedError, refusal

_log = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; "
        "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers added to every response."""

_RAW_HEADERS = [
    (name.lower().encode(), value.encode()) for name, value in {**HEADERS, "Cache-Control": "no-store"}.items()
]


class RequestMiddleware:
    """ASGI middleware that passes on only requests that are allowed, complete and small enough.

    Work for a client that disconnects, or whose time is up, is cancelled. Clients see internal errors only as problem
    details, and not at all once a response has started.
    """

    def __init__(self, app: ASGIApp, access_control: AccessControl, limits: Limits, metrics: Metrics) -> None:
        self._app = app
        self._access_control = access_control
        self._limits = limits
        self._bodies, self._memory = BodyReader(limits), BodyMemory(limits.all_bodies_bytes)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request, or respond to it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "is_head": True}  # the server drops the body of the response
        sender = _Sender(send, self._limits.write_seconds)
        began = time.perf_counter()
        self._metrics.begin()
        try:
            await self._answered(scope, receive, sender)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.end(route, sender.status, time.perf_counter() - began)

    async def _answered(self, scope: Scope, receive: Receive, sender: "_Sender") -> None:
        try:
            headers = Headers(scope=scope)
            client = (scope.get("client") or ("unknown", 0))[0]
            self._access_control.check(scope["method"], scope["path"], headers, client)
            self._check_parameters(scope.get("query_string", b""))
            deadline = asyncio.get_running_loop().time() + self._limits.seconds
            with self._memory.use() as take:
                body = await self._body_by(deadline, scope, headers, receive, take)
                async with asyncio.timeout_at(deadline) as sender.deadline:
                    await _unless_gone(self._app, scope, body, receive, sender)
        except ClientGoneError:
            _log.info("a client disconnected before its response")
        except TimeoutError:
            way_out = "Ask for less: a smaller rerank, or a budget_ms."
            await sender.refuse(
                RefusedError(503, f"not finished within {self._limits.seconds:g} s", way_out), scope, receive
            )
        except Exception as error:
            await sender.refuse(refusal(error), scope, receive)  # also logs internal errors

    def _check_parameters(self, query: bytes) -> None:
        """Refuse a query string with so many parameters that reporting each would take long."""
        if query.count(b"&") >= self._limits.parameters:
            raise RefusedError(422, f"more than {self._limits.parameters} parameters in the query string", "See /docs.")

    async def _body_by(self, deadline: float, scope: Scope, headers: Headers, receive: Receive, take: Take) -> bytes:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._bodies.read(scope["method"], scope["path"], headers, receive, take)
        except TimeoutError as error:
            refused = RefusedError(
                408, f"the request was not received within {self._limits.seconds:g} s", headers={"Connection": "close"}
            )
            raise refused from error


class _Sender:
    """Sends a response with the headers common to all responses.

    status: the status of the response; 0 before it starts. deadline: when the response must start. From then on, the
    client must instead receive each chunk in time.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self.status = 0
        self.deadline: asyncio.Timeout | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(one for one in _RAW_HEADERS if one[0] not in own)]
            if self.deadline is not None and not self.deadline.expired():
                self.deadline.reschedule(None)
        async with asyncio.timeout(self._seconds):
            await self._send(message)

    async def refuse(self, refused: RefusedError, scope: Scope, receive: Receive) -> None:
        """Respond with a problem, unless a response has already started."""
        self.deadline = None
        if not self.status:
            await refused.response(Headers(scope=scope).get("accept", ""))(scope, receive, self)


async def _unless_gone(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run an application on a request whose body was read completely; cancel it if the client disconnects."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await asyncio.shield(leaving)
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    leaving = asyncio.ensure_future(_disconnect(receive))
    working = asyncio.ensure_future(app(scope, replay, send))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> Message:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return message
