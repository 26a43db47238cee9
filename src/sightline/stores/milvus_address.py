"""The URL of a Milvus store.

    milvus://HOST:PORT/NAME?index=hnsw&consistency=Strong&partition=year

index: the type of index, one of `INDEXES`. It is set when the store is created; by default `hnsw` if the
server supports it, and `flat` otherwise.
consistency: which recent writes a search sees: Strong, Session, Bounded or Eventually.
partition: what the store is partitioned by: `year` or `month` (of capture), or `folder`. Filters on it then read only
some partitions.

Do not put a user and password or an API key in the URL, because it is stored in files; set `MILVUS_TOKEN` instead.
"""

import re
from dataclasses import dataclass
from math import gcd
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from sightline.errors import StoreError
from sightline.stores.base import Partition

Consistency = Literal["Strong", "Session", "Bounded", "Eventually"]

SCHEME = "milvus"
PORT = 19530
_HOW = "Use milvus://HOST:PORT/NAME; NAME has only letters, digits and _, and begins with a letter."


@dataclass(frozen=True, slots=True)
class IndexType:
    """A kind of Milvus index: how it is built, and how much effort a search makes.

    effort: the name of the parameter for how many vectors a search examines, its minimum, and the factor by which it
    grows with the number of results; None for an index that examines all vectors.
    most: the maximum that Milvus accepts for this parameter.
    """

    kind: str
    build: dict[str, Any]
    effort: tuple[str, int, int] | None = None
    most: int = 32_768

    def building(self, dim: int) -> dict[str, Any]:
        """Build parameters for vectors of this dimension; a product quantiser requires a divisor of the dimension."""
        return self.build | ({"m": gcd(self.build["m"], dim)} if "m" in self.build else {})

    def search(self, limit: int) -> dict[str, Any]:
        """Return the search parameters for this number of results."""
        if self.effort is None:
            return {}
        name, least, times = self.effort
        return {name: min(max(least, times * limit), self.most)}


INDEXES: dict[str, IndexType] = {
    "flat": IndexType("FLAT", {}),
    "hnsw": IndexType("HNSW", {"M": 32, "efConstruction": 256}, ("ef", 256, 2)),
    "ivf-sq8": IndexType("IVF_SQ8", {"nlist": 1024}, ("nprobe", 64, 0), 1024),
    "ivf-pq": IndexType("IVF_PQ", {"nlist": 1024, "m": 64, "nbits": 8}, ("nprobe", 64, 0), 1024),
    "scann": IndexType("SCANN", {"nlist": 1024}, ("nprobe", 64, 0), 1024),
    "diskann": IndexType("DISKANN", {}, ("search_list", 128, 2), 16_384),
}
"""`hnsw` keeps full vectors in memory; `ivf-sq8`, `scann` and `ivf-pq` compress them to 1/4 to 1/32 of their size;
`diskann` keeps them on the servers' disks."""

AUTO = "auto"
"""The default: the first of `PREFERRED` that the server supports."""

PREFERRED = ("hnsw", "flat")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed Milvus URL."""

    host: str
    port: int
    name: str
    index: str = AUTO
    consistency: Consistency = "Bounded"
    partition: Partition | None = None

    def __str__(self) -> str:
        own = {"index": self.index, "consistency": self.consistency, "partition": self.partition}
        usual = {"index": AUTO, "consistency": "Bounded", "partition": None}
        options = "&".join(f"{name}={value}" for name, value in own.items() if value != usual[name])
        return f"{SCHEME}://{self.host}:{self.port}/{self.name}" + (f"?{options}" if options else "")


def parse_address(url: str) -> Address:
    """Parse the URL of a Milvus store.

    >>> parse_address("milvus://vectors.example.org/photos?index=diskann").port
    19530
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise StoreError(f"{url}: cannot be read: {error}", _HOW) from error
    if parts.username or parts.password:
        raise StoreError(
            "the store's URL contains a password, which would end up in files", "Set MILVUS_TOKEN=user:password."
        )
    name = parts.path.strip("/")
    if parts.scheme != SCHEME:
        raise StoreError(f"{url}: not the URL of a Milvus store", _HOW)
    if not host or not name:
        raise StoreError(f"{url}: has no {'store name' if host else 'host'}", _HOW)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", name):
        raise StoreError(f"{url}: invalid store name: {name[:80]!r}", _HOW)
    for option, choices in _CHOICES.items():
        if options.get(option, choices[0]) not in choices:
            raise StoreError(f"{url}: {option} cannot be {options[option]!r}", f"Choose one of {', '.join(choices)}.")
    if unknown := options.keys() - _CHOICES.keys():
        raise StoreError(f"{url}: unknown option {min(unknown)!r}", f"The options are {', '.join(_CHOICES)}.")
    shown = f"[{host}]" if ":" in host else host
    return Address(shown, port, name, **options)  # type: ignore[arg-type]


_CHOICES: dict[str, tuple[str, ...]] = {
    "index": (AUTO, *INDEXES),
    "consistency": get_args(Consistency),
    "partition": get_args(Partition),
}
