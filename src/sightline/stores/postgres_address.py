"""The URL of a PostgreSQL store.

    postgresql://USER@HOST:PORT/DATABASE/NAME?index=hnsw&pictures=thumbnails&sslmode=verify-full

NAME: the schema that contains the tables of the store; `sightline` by default. A database may have several stores.
index: flat to compare every vector, hnsw for an approximate index from the beginning, or auto (default): flat for up to
    10,000 items, and an index once there are more. It is set when the store is created.
pictures: the form in which pictures are stored, so that other machines can show them: thumbnails, originals or none.
sslmode: how the connection is encrypted, as in libpq.
host: the folder of a Unix socket, instead of HOST.

Anything left out is up to libpq, which reads the environment variables PGHOST, PGPORT, PGUSER and PGSSLMODE. The
password is taken from PGPASSWORD or ~/.pgpass. It is refused in the URL, because the URL is stored in files.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from sightline.errors import StoreError
from sightline.stores.base import StoredImages

IndexName = Literal["auto", "hnsw", "flat"]
SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]

SCHEMES = ("postgresql", "postgres")
DEFAULT_NAME = "sightline"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9]+)?")
_HOW = "Use postgresql://USER@HOST:PORT/DATABASE/NAME; NAME has only letters, digits and _, and begins with a letter."


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A parsed PostgreSQL URL. Empty fields are left to libpq."""

    host: str
    port: int | None
    database: str
    name: str = DEFAULT_NAME
    user: str = ""
    index: IndexName = "auto"
    pictures: StoredImages = "thumbnails"
    sslmode: SslMode | None = None

    @property
    def server(self) -> str:
        """The server as shown in messages."""
        return f"{self.host or 'the default host'}" + (f":{self.port}" if self.port else "")

    def __str__(self) -> str:
        is_socket = self.host.startswith("/")
        host = "" if is_socket else f"[{self.host}]" if ":" in self.host else self.host
        at = (f"{quote(self.user, safe='')}@" if self.user else "") + host + (f":{self.port}" if self.port else "")
        options = {"host": self.host if is_socket else None, "sslmode": self.sslmode}
        options |= {"index": self.index if self.index != "auto" else None}
        options |= {"pictures": self.pictures if self.pictures != "thumbnails" else None}
        shown = "&".join(f"{name}={quote(value)}" for name, value in options.items() if value)
        return f"{SCHEMES[0]}://{at}/{quote(self.database, safe='')}/{self.name}" + (f"?{shown}" if shown else "")


def parse_postgres_address(url: str) -> PostgresAddress:
    """Parse the URL of a PostgreSQL store.

    >>> parse_postgres_address("postgresql://app@db.example.org/shop/photos?index=flat").database
    'shop'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise StoreError(f"{_without_password(url)}: cannot be read: {error}", _HOW) from error
    if parts.password is not None or "password" in options:
        raise StoreError(
            "the store's URL contains a password, which would end up in files",
            "Set PGPASSWORD, or write it to ~/.pgpass.",
        )
    database, _, name = parts.path.removeprefix("/").partition("/")
    database, name = unquote(database), name.strip("/") or DEFAULT_NAME
    if not url.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise StoreError(f"{url}: not the URL of a PostgreSQL store", _HOW)
    if not database or "\0" in database:
        raise StoreError(f"{url}: has no {'valid ' if database else ''}database name", _HOW)
    if not _NAME.fullmatch(name) or name.lower().startswith("pg_"):
        raise StoreError(f"{url}: invalid store name: {name[:80]!r}", _HOW)
    socket = options.pop("host", "")
    if (host and socket) or (socket and not socket.startswith("/")) or (host and not _HOST.fullmatch(host)):
        raise StoreError(f"{url}: invalid host: {(socket or host)[:80]!r}", _HOW)
    for option, value in options.items():
        if option not in _CHOICES:
            raise StoreError(f"{url}: unknown option {option!r}", f"The options are host, {', '.join(_CHOICES)}.")
        if value not in _CHOICES[option]:
            raise StoreError(f"{url}: {option} cannot be {value!r}", f"Choose one of {', '.join(_CHOICES[option])}.")
    user = unquote(parts.username or "")
    return PostgresAddress(socket or host, port, database, name, user, **options)  # type: ignore[arg-type]


def _without_password(url: str) -> str:
    return re.sub(r"(//[^:@/]*):[^@/]*@", r"\1@", url)


_CHOICES: dict[str, tuple[str, ...]] = {
    "index": get_args(IndexName),
    "pictures": get_args(StoredImages),
    "sslmode": get_args(SslMode),
}
