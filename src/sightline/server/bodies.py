"""The bodies of requests: which types each route accepts, their size, and the shape of JSON."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import Receive

from sightline.server.limits import Limits
from sightline.server.problems import RefusedError

JSON, MULTIPART, URL_ENCODED = "application/json", "multipart/form-data", "application/x-www-form-urlencoded"
_DEEPEST = 16
_BRACKET = re.compile(rb"[\[\]{}]")
Take = Callable[[int], None]
"""A function that takes memory for this many bytes."""


class ClientGoneError(Exception):
    """The client closed the connection."""


class AcceptedBody(NamedTuple):
    """What a route accepts as the body of a POST request.

    types: content types. with_images: those of them that may contain images, and so be large.
    values: the largest number of values in JSON, including lists and objects.
    """

    types: tuple[str, ...]
    with_images: tuple[str, ...] = ()
    values: int = 0


def accepted_body(method: str, path: str, limits: Limits) -> AcceptedBody | None:
    """Return what the route of a request accepts; None if it reads no body."""
    if method != "POST":
        return None
    if path == "/v1/search":
        return AcceptedBody((JSON, MULTIPART), with_images=(MULTIPART,), values=limits.items)
    if path in ("/v1/embed", "/v1/match"):
        return AcceptedBody((JSON,), with_images=(JSON,), values=5 * limits.items)
    if path == "/v1/download":
        return AcceptedBody((JSON, URL_ENCODED, MULTIPART), values=limits.ids + limits.items)
    if path == "/v1/paths" or path.startswith("/v1/albums/"):
        return AcceptedBody((JSON,), values=limits.ids + limits.items)
    return None


def body_type(headers: Headers) -> str:
    """Return the content type of a request, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class BodyMemory:
    """The memory for the bodies of all requests in progress."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def use(self) -> Iterator[Take]:
        """A function that takes memory for parts of one request's body; it is given back when the block ends."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if size > self._left:
                headers = {"Retry-After": "1", "Connection": "close"}
                raise RefusedError(503, "too much is being sent at once", "Try again soon.", headers=headers)
            self._left -= size
            taken += size

        try:
            yield take
        finally:
            self._left += taken


class BodyReader:
    """Reads the bodies of requests, and refuses those that no route accepts."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def read(self, method: str, path: str, headers: Headers, receive: Receive, take: Take) -> bytes:
        """Return the body of a request; one of the wrong type, too large or too complex is refused early."""
        accepted, found = accepted_body(method, path, self._limits), body_type(headers)
        if accepted is not None and found not in accepted.types:
            way_out = f"Send {' or '.join(accepted.types)}."
            raise RefusedError(415, f"unsupported content type: {found[:100] or 'none'}", way_out)
        body = await self._received(accepted is not None and found in accepted.with_images, headers, receive, take)
        if accepted is not None and found == JSON:
            check_json(body, accepted.values, self._limits)
        return body

    async def _received(self, with_images: bool, headers: Headers, receive: Receive, take: Take) -> bytes:
        most = self._limits.upload_bytes if with_images else self._limits.body_bytes
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_large(most, with_images)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most, with_images)
            take(len(parts[-1]))
            if not message.get("more_body", False):
                return b"".join(parts)


def _too_large(most: int, with_images: bool) -> RefusedError:
    shown = f"{most / 2**20:g} MB" if most >= 2**20 else f"{most / 2**10:g} kB"
    way_out = "Send a smaller picture." if with_images else "Send less at once."
    return RefusedError(413, f"the request is larger than {shown}", way_out, headers={"Connection": "close"})


def check_json(body: bytes, most: int, limits: Limits) -> None:
    """Refuse JSON with more than `most` values, or nested deeper than any valid request, before it is parsed.

    Parsers are recursive, and validation reports an error for each unknown key. This check takes milliseconds, whatever
    the body contains.
    """
    if b"\0" in body:  # other encodings would hide what is in strings
        raise RefusedError(422, "the JSON is not in UTF-8", "See /docs.")
    brackets = body.count(b"[") + body.count(b"{")
    if brackets <= _DEEPEST and brackets + body.count(b",") <= most:
        return
    too_many = RefusedError(422, f"the JSON has more than {most:,} values", "See /docs.")
    if body.count(b'"') > 4 * most + limits.items * limits.characters:  # around keys and values, and in texts
        raise too_many
    outside = _outside_strings(body)
    _check_depth(outside, most)
    if sum(map(outside.count, (b"[", b"{", b","))) > most:
        raise too_many


def _check_depth(outside: bytes, most: int) -> None:
    """Refuse deeply nested JSON; if more than `most` lists and objects are opened, the rest is not checked."""
    depth = 0
    for bracket in islice(_BRACKET.finditer(outside), 2 * most + 1):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth < 0:  # the parser stops here, too
            return
        if depth > _DEEPEST:
            raise RefusedError(422, f"the JSON is nested more than {_DEEPEST} levels deep", "See /docs.")


def _outside_strings(body: bytes) -> bytes:
    r"""Return what is outside the strings of JSON.

    >>> _outside_strings(rb'{"a": ["[", "\\", "\"]"]}')
    b'{: [, , ]}'
    """
    return b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
