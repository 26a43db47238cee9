"""Transactions on a PostgreSQL server, retried while it is starting, busy or unreachable."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from sightline.errors import StoreError, UnreachableServerError
from sightline.stores.postgres_address import PostgresAddress
from sightline.stores.postgres_driver import driver, run
from sightline.stores.postgres_vectors import register

if TYPE_CHECKING:
    from sightline.stores.postgres_driver import Connection

T = TypeVar("T")

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_CONNECTIONS = 16  # the maximum for one process
_CONNECT_SECONDS = 10
_MOST_STARTS = 8  # give up on a call that has failed this many times
_STATEMENT_SECONDS = 120
_TEMPORARY = ("08", "53", "57P", "40001", "40P01", "55P03", "25006")
"""SQLSTATE prefixes of errors that may pass: lost connections, lack of resources, restarts, conflicts, standby."""
_REFUSED = ("authentication", "password", "pg_hba.conf", "does not exist", "permission denied", "certificate", "SSL")
"""Words in connection errors that mean the server refused; such errors have no SQLSTATE."""


class PostgresServer:
    """A pool of connections to a server, each used by one thread at a time.

    patience: seconds after which to give up on a server that is unreachable or not ready.
    """

    def __init__(self, address: PostgresAddress, patience: float) -> None:
        self.address, self.patience = address, patience
        self._idle: list[Connection] = []
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        self._lock = threading.Lock()
        self._is_closed = False

    def read(self, call: Callable[["Connection"], T], settings: dict[str, str] | None = None) -> T:
        """Run a call in a read-only transaction, with these settings; the call may run several times."""

        def attempt(connection: "Connection") -> T:
            with connection.transaction():
                _set(connection, {"transaction_read_only": "on", **(settings or {})})
                return call(connection)

        return self._ask(attempt)

    def write(self, call: Callable[["Connection"], None]) -> None:
        """Run a call in a transaction, and commit it exactly once.

        If the connection is lost during the commit, the transaction's token shows whether the commit took place.
        """
        token = uuid4()
        errors = driver().errors

        def attempt(connection: "Connection") -> None:
            with connection.transaction():
                _set(connection, {})
                try:
                    run(connection, self.address, "INSERT INTO {writes} (token) VALUES (%s)", [token])
                except errors.UniqueViolation as error:
                    raise driver().Rollback from error  # an earlier attempt was committed
                call(connection)

        self._ask(attempt)

    def transact(self, call: Callable[["Connection"], T]) -> T:
        """Run a call in a transaction; the call may be repeated even if it was already committed."""

        def attempt(connection: "Connection") -> T:
            with connection.transaction():
                _set(connection, {})
                return call(connection)

        return self._ask(attempt)

    def maintain(self, call: Callable[["Connection"], T]) -> T:
        """Run a call outside transactions, as VACUUM requires, without a time limit."""
        return self._ask(call)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
        self._drop_idle()

    def _ask(self, call: Callable[["Connection"], T]) -> T:
        """Make a call, retrying with increasing delays until it succeeds or `patience` runs out.

        A call that keeps losing the connection is given up earlier, because it may be what crashes the server.
        """
        errors = driver().Error
        give_up, wait, started = time.monotonic() + self.patience, _FIRST_WAIT, 0
        while True:
            try:
                with self._connection() as connection:
                    started += 1
                    return call(connection)
            except errors as error:
                if not _may_pass(error):
                    raise StoreError(f"{self.address}: {_said(error)}", _way_out(error)) from error
                if time.monotonic() + wait > give_up or started >= _MOST_STARTS:
                    raise self._away(error) from error
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    @contextmanager
    def _connection(self) -> Iterator["Connection"]:
        """A connection for exclusive use; it goes back to the pool unless something fails."""
        with self._slots:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            connection = connection or _connect(self.address, min(self.patience, _CONNECT_SECONDS))
            try:
                yield connection
            except driver().Error:
                self._drop_idle()  # after a restart of the server, the others are lost as well
                connection.close()
                raise
            finally:
                self._put_back(connection)

    def _put_back(self, connection: "Connection") -> None:
        """Keep a connection for later, unless it is lost or in the middle of a transaction."""
        is_idle = not connection.closed and connection.info.transaction_status.name == "IDLE"
        with self._lock:
            if is_idle and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _away(self, error: Exception) -> StoreError:
        return UnreachableServerError(
            f"no PostgreSQL server answers at {self.address.server}: {_said(error)}",
            "Start it, or check the address and the network. What was already written is safe.",
        )


def _connect(address: PostgresAddress, timeout: float) -> "Connection":
    """Connect as libpq does: the password is taken from the environment or ~/.pgpass.

    Statements are never prepared, because poolers such as PgBouncer may not keep them.
    """
    given = {
        "host": address.host,
        "port": address.port,
        "dbname": address.database,
        "user": address.user,
        "sslmode": address.sslmode,
    }
    connection: Connection = driver().connect(
        **{name: value for name, value in given.items() if value},
        connect_timeout=max(2, int(timeout)),
        application_name="sightline",
        autocommit=True,
        prepare_threshold=None,
    )
    register(connection)
    return connection


def _set(connection: "Connection", settings: dict[str, str]) -> None:
    """Set parameters until the end of the transaction."""
    settings = {"statement_timeout": f"{_STATEMENT_SECONDS}s", **settings}
    calls = ", ".join("set_config(%s, %s, true)" for _ in settings)
    connection.execute(f"SELECT {calls}".encode(), [text for pair in settings.items() for text in pair])


def _may_pass(error: Exception) -> bool:
    """Return whether retrying may help: the server is unreachable, restarting or out of resources."""
    state: str | None = getattr(error, "sqlstate", None)
    if state is not None:
        return state.startswith(_TEMPORARY) and state != "57014"
    psycopg = driver()
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return not any(reason in str(error) for reason in _REFUSED)


def _way_out(error: Exception) -> str:
    said = str(error)
    if "password" in said or "authentication" in said:
        return "Set PGPASSWORD, or write the password to ~/.pgpass; put the user in the URL: postgresql://USER@HOST/…"
    if getattr(error, "sqlstate", None) == "42501":
        return "Ask the database administrator for this permission; see docs/postgres.md."
    return ""


def _said(error: Exception) -> str:
    """Return the error message on one line."""
    return " ".join(str(error).split())[:300]
