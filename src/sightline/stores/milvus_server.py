"""Calls to a Milvus server, retried while it is busy, starting or unreachable."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sightline.errors import StoreError, UnreachableServerError
from sightline.packages import install_extra
from sightline.stores.milvus_address import Address

if TYPE_CHECKING:
    from pymilvus import MilvusClient

T = TypeVar("T")

TOKEN = "MILVUS_TOKEN"
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_CALL_SECONDS = 60.0
_AT_ONCE = 8_192  # rows per page; Milvus returns at most 16,384
_NOT_READY = {1, 2, 4, 5, 8, 101, 201, *range(400, 700), *range(900, 1000)}
"""Error codes of a server that is not ready: it is starting, busy, or has lost a node."""


class RefusedError(StoreError):
    """The server answered that it cannot do what was requested."""


class Server:
    """A connection to a server. Calls that fail because it is unreachable are retried with increasing delays.

    patience: seconds after which to give up. All calls are idempotent, so they can be retried even if the server
    crashed after completing one.
    """

    def __init__(self, address: Address, patience: float) -> None:
        self.address, self.patience = address, patience
        self.timeout = min(patience, _CALL_SECONDS)
        self._client: MilvusClient | None = None

    def query(self, name: str, filter: str, fields: Sequence[str], consistency: str) -> list[dict[str, Any]]:
        """Return the given fields of the rows that pass a filter, up to the limit of one Milvus request."""
        return self.ask(
            lambda client: list(
                client.query(
                    name, filter=filter, output_fields=list(fields), timeout=self.timeout, consistency_level=consistency
                )
            )
        )

    def query_all(self, name: str, filter: str, fields: Sequence[str], consistency: str) -> list[dict[str, Any]]:
        """Return the given fields of all rows that pass a filter, without a limit, ordered by key."""
        return self.ask(lambda client: _everything(client, name, filter, list(fields), self.timeout, consistency))

    def upsert(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Insert or replace rows by key; once this returns, the server has them in its log."""
        self.ask(lambda client: client.upsert(name, rows, timeout=self.timeout))

    def replace(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Delete rows by key and insert them, because `upsert` before Milvus 2.3.10 ignores the partition key."""
        keys = [row["id"] for row in rows]

        def call(client: "MilvusClient") -> None:
            client.delete(name, ids=keys, timeout=self.timeout)
            client.insert(name, rows, timeout=self.timeout)

        self.ask(call)

    def delete(self, name: str, filter: str) -> None:
        """Delete the rows that pass a filter."""
        self.ask(lambda client: client.delete(name, filter=filter, timeout=self.timeout))

    def ask(self, call: Callable[["MilvusClient"], T]) -> T:
        """Make a call, retrying until it succeeds or `patience` runs out."""
        errors = _theirs()
        give_up, wait = time.monotonic() + self.patience, _FIRST_WAIT
        while True:
            try:
                return call(self._connected())
            except errors as error:
                if not _may_pass(error):
                    raise RefusedError(f"{self.address}: {_said(error)}") from error
                if time.monotonic() + wait > give_up:
                    raise self._away(error) from error
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def _connected(self) -> "MilvusClient":
        if self._client is None:
            self._client = _client(self.address, self.timeout)
        return self._client

    def _away(self, error: Exception) -> StoreError:
        return UnreachableServerError(
            f"no Milvus server answers at {self.address.host}:{self.address.port}: {_said(error)}",
            "Start it, or check the address, the network and MILVUS_TOKEN. What was already written is safe.",
        )


def client_package() -> Any:
    """Import pymilvus, which takes a second and may not be installed."""
    try:
        import pymilvus
    except ImportError as error:
        raise StoreError(f"Milvus needs a package: {error}", install_extra("scale")) from error
    return pymilvus


def _client(address: Address, timeout: float) -> "MilvusClient":
    package = client_package()
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # pymilvus logs a traceback for each attempt
    uri, token = f"http://{address.host}:{address.port}", os.environ.get(TOKEN, "")
    return package.MilvusClient(uri=uri, token=token, timeout=timeout, dedicated=True)


def _everything(
    client: "MilvusClient", name: str, filter: str, fields: list[str], timeout: float, consistency: str
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    pages = client.query_iterator(
        name, _AT_ONCE, filter=filter, output_fields=fields, timeout=timeout, consistency_level=consistency
    )
    while page := pages.next():
        rows += page
    pages.close()
    return rows


def _theirs() -> tuple[type[Exception], ...]:
    """Return the exception types that pymilvus and grpc raise."""
    client_package()
    import grpc
    from pymilvus.exceptions import MilvusException

    return MilvusException, grpc.RpcError


def _may_pass(error: Exception) -> bool:
    """Return whether retrying may help: the server is unreachable or not ready."""
    import grpc

    found: Any = getattr(error, "code", None)
    code = found() if callable(found) else found
    gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
    return code in gone or code in _NOT_READY


def _said(error: Exception) -> str:
    """Return the error message on one line."""
    said: Any = getattr(error, "message", "") or getattr(error, "details", lambda: "")() or error
    return " ".join(str(said).split())[:300]
