"""Who may ask: the right host name, the right token, and not too often."""

import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from sightline.errors import ServeError
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError

COOKIE = "sightline"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_CLIENTS = 10_000


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to show a collection to other machines without a token."""
    if not is_loopback(host) and not token:
        raise ServeError(
            f"{host} can be reached from other machines, and there is no token",
            "Give one with --token or SIGHTLINE_TOKEN, or leave out --host to serve this machine alone.",
        )


class AccessControl:
    """Lets requests in, or says why not.

    Without a token only this machine can reach the server, and then requests must name it as this machine: a web page
    elsewhere could make its own name point here, and read what its visitor can read. With a token it must be given, as
    `Authorization: Bearer …` or by the cookie that `session` makes for a browser, whose pictures carry no headers. The
    cookie holds a secret of this run, not the token. `open_paths` are for everybody: they tell nothing.
    """

    def __init__(
        self,
        host: str,
        token: str | None,
        limits: Limits,
        open_paths: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_exposure(host, token)
        self._open_paths = open_paths
        self._names = _LOCAL_NAMES | {host}
        self._token = token
        self._session = secrets.token_urlsafe(32)
        self._rate = None if is_loopback(host) else Rate(limits.rate, limits.burst, clock)

    @property
    def session(self) -> str:
        """The cookie of a browser that has shown the token; nothing else may be made of it."""
        return f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Strict"

    def check(self, path: str, headers: Headers, client: str) -> None:
        """Raise `RefusedError` for a request that may not come in."""
        if self._rate:
            self._rate.check(client)
        if self._token is None:
            self._check_host(headers.get("host", ""))
        elif path not in self._open_paths:
            self._check_token(headers, self._token)

    def _check_host(self, host: str) -> None:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if name not in self._names:
            raise RefusedError(
                421, "this server does not go by that name", "Call it 127.0.0.1, or start it with a token."
            )

    def _check_token(self, headers: Headers, token: str) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), token):
            return
        if _same(_cookie(headers.get("cookie", "")), self._session):
            return
        raise RefusedError(
            401,
            "the token is missing or wrong",
            "Send the header Authorization: Bearer TOKEN.",
            headers={"WWW-Authenticate": 'Bearer realm="sightline"'},
        )


class Rate:
    """A bucket of requests for every client, which fills up again at a steady rate."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Take a request out of a client's bucket; raise `RefusedError` where it is empty."""
        client = _network(client)
        now = self._clock()
        left, at = self._buckets.pop(client, (float(self._burst), now))
        left = min(float(self._burst), left + self._rate * (now - at))
        self._buckets[client] = (max(0.0, left - 1), now)
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = max(1, round((1 - left) / self._rate))
            raise RefusedError(429, "too many requests", f"Wait {wait} s.", headers={"Retry-After": str(wait)})


def _network(client: str) -> str:
    """Whom requests are counted for: an IPv4 address, or the network of an IPv6 address, which has plenty."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 4:
        return client
    return str(ipaddress.ip_network(f"{client.partition('%')[0]}/64", strict=False))


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode("utf-8", "surrogateescape"))


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
