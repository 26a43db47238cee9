"""Middleware for every request: access control, size and time limits, metrics."""

import asyncio
import logging
import re
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sightline.server.access import AccessControl
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
_DEEPEST = 16
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_JSON, _FORM = "application/json", "multipart/form-data"
_CONTENT_TYPES = {"/v1/search": (_JSON, _FORM), "/v1/embed": (_JSON,), "/v1/match": (_JSON,)}


class ClientGoneError(Exception):
    """The client closed the connection."""


class RequestMiddleware:
    """ASGI middleware that passes on only requests that are allowed, complete and small enough.

    Work for a client that disconnects, or whose time is up, is cancelled. Clients see internal errors only as problem
    details, and not at all once a response has started.
    """

    def __init__(self, app: ASGIApp, access_control: AccessControl, limits: Limits, metrics: Metrics) -> None:
        self._app = app
        self._access_control = access_control
        self._limits = limits
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
            _check_content_type(scope, headers)
            deadline = asyncio.get_running_loop().time() + self._limits.seconds
            body = await self._body_by(deadline, headers, receive)
            if _content_type(headers) == _JSON:
                check_depth(body)
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

    async def _body_by(self, deadline: float, headers: Headers, receive: Receive) -> bytes:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._body(headers, receive)
        except TimeoutError as error:
            refused = RefusedError(
                408, f"the request was not received within {self._limits.seconds:g} s", headers={"Connection": "close"}
            )
            raise refused from error

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Read the body of a request; one that is too large is refused as soon as possible."""
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._limits.upload_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limits.upload_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> RefusedError:
        most = f"{self._limits.upload_bytes / 2**20:g} MB"
        return RefusedError(
            413, f"the request is larger than {most}", "Send a smaller picture.", headers={"Connection": "close"}
        )


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
            await refused.response()(scope, receive, self)


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


def _content_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def check_depth(body: bytes) -> None:
    """Refuse JSON that is nested deeper than any valid request, because JSON parsers are recursive."""
    if body.count(b"[") + body.count(b"{") <= _DEEPEST:
        return
    depth = 0
    for token in _BRACKETS.finditer(body):
        first = token[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > _DEEPEST:
            raise RefusedError(422, f"the JSON is nested more than {_DEEPEST} levels deep", "See /docs.")


def _check_content_type(scope: Scope, headers: Headers) -> None:
    allowed = _CONTENT_TYPES.get(scope["path"], ())
    if scope["method"] != "POST" or not allowed:
        return
    found = _content_type(headers)
    if found not in allowed:
        raise RefusedError(415, f"unsupported content type: {found or 'none'}", f"Send {' or '.join(allowed)}.")
