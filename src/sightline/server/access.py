"""Access control: host names, tokens, requests from other web sites, and rate limits."""

import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from sightline.errors import ServeError
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_CLIENTS = 10_000


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """Refuse an unusable token, and an address that other machines can reach without a token."""
    if token is not None:
        _check_usable(token)
    elif not is_loopback(host):
        raise ServeError(
            f"{host} can be reached from other machines, but there is no token",
            "Set one with --token or SIGHTLINE_TOKEN, or leave out --host to serve only this machine.",
        )


def _check_usable(token: str) -> None:
    if not token.strip():
        raise ServeError("the token is empty", "Leave out --token, or choose one that is hard to guess.")
    if token != token.strip() or not (token.isascii() and token.isprintable()):
        raise ServeError(
            "the token is not valid in an HTTP header",
            "Use ASCII letters, digits and punctuation, without spaces at the ends.",
        )


class AccessControl:
    """Decides which requests are allowed.

    Without a token, only this machine can reach the server, and the Host header must name this machine: otherwise a web
    page could point its own host name here (DNS rebinding) and read what its visitor can read. With a token, requests
    must carry it as `Authorization: Bearer TOKEN` or in the cookie from `session`, because browsers request the images
    of a page without that header. The cookie contains a random secret that is valid for this run, not the token. In
    both cases, requests that a browser makes on behalf of a page from another origin are refused, except for following
    a link to this server's own page.

    port: the port of the server, for the name of the cookie: browsers send cookies to all servers on a host.
    open_paths: paths that need no token. page_paths: paths that may be opened from other sites.
    """

    def __init__(
        self,
        host: str,
        token: str | None,
        limits: Limits,
        port: int = 8000,
        open_paths: frozenset[str] = frozenset(),
        page_paths: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_exposure(host, token)
        self._open_paths, self._page_paths = open_paths, page_paths
        self._names = _LOCAL_NAMES | {host}
        self._token = token
        self._cookie, self._session = f"sightline-{port}", secrets.token_urlsafe(32)
        self._rate = None if is_loopback(host) else Rate(limits.rate, limits.burst, clock)

    @property
    def session(self) -> str:
        """The `Set-Cookie` header for a browser that has sent the token."""
        return f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"

    def check(self, method: str, path: str, headers: Headers, client: str) -> None:
        """Raise `RefusedError` if a request is not allowed."""
        if self._rate:
            self._rate.check(client)
        if self._token is None:
            self._check_host(headers.get("host", ""))
        self._check_origin(method, path, headers)
        if self._token is not None and path not in self._open_paths:
            self._check_token(headers, self._token)

    def _check_host(self, host: str) -> None:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if name not in self._names:
            raise RefusedError(
                421, "the server does not accept this host name", "Use 127.0.0.1, or start the server with a token."
            )

    def _check_origin(self, method: str, path: str, headers: Headers) -> None:
        """Refuse requests on behalf of another site, judging by headers that browsers set and pages cannot forge."""
        site = headers.get("sec-fetch-site")
        if site in ("same-origin", "none"):
            return
        follows_link = method == "GET" and path in self._page_paths and headers.get("sec-fetch-mode") == "navigate"
        if site is not None and not follows_link:
            raise _other_site()
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host", "").lower():
            raise _other_site()

    def _check_token(self, headers: Headers, token: str) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), token):
            return
        if _same(cookie_parser(headers.get("cookie", "")).get(self._cookie, ""), self._session):
            return
        raise RefusedError(
            401,
            "the token is missing or wrong",
            "Send the header Authorization: Bearer TOKEN.",
            headers={"WWW-Authenticate": 'Bearer realm="sightline"'},
        )


class Rate:
    """Token buckets that limit the sustained rate and the burst size of each client."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Count a request from a client; raise `RefusedError` if the client makes too many."""
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
    """Return the key that requests are counted by: an IPv4 address, or the /64 network of an IPv6 address.

    >>> _network("::ffff:203.0.113.7"), _network("2001:db8::7")
    ('203.0.113.7', '2001:db8::/64')
    """
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return client
    if address.ipv4_mapped:  # an IPv4 client of a server that listens on ::
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network(f"{client.partition('%')[0]}/64", strict=False))


def _other_site() -> RefusedError:
    return RefusedError(403, "requests from other websites are refused", "Open the page of this server instead.")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _same(given: str, wanted: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode("utf-8", "surrogateescape"))
