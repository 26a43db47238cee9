"""The tables of a PostgreSQL store, in a schema of their own, created in one transaction."""

from typing import TYPE_CHECKING, Any, LiteralString

from sightline.errors import StoreError
from sightline.stores.base import FILES, Columns, Shape
from sightline.stores.packing import kept_parts
from sightline.stores.postgres_address import IndexName, PostgresAddress
from sightline.stores.postgres_driver import MANIFEST, driver, run
from sightline.stores.postgres_server import PostgresServer
from sightline.stores.postgres_vectors import register

if TYPE_CHECKING:
    from sightline.stores.postgres_driver import Connection

INDEX_FROM = 10_000
"""With the option `auto`, stores with fewer items have no index, because comparing all vectors is fast enough."""

_HNSW_DIMENSIONS = 4_000  # the most that pgvector can index in float16

_INLINE_DIMENSIONS = 3_000  # vectors of up to this size fit into a page of 8 KB with the rest of the row
_OLDEST = (0, 8)
_INDEX = (
    "CREATE INDEX IF NOT EXISTS items_by_embedding ON {items} USING hnsw (embedding halfvec_ip_ops) "
    "WITH (m = 16, ef_construction = 128)"
)
_INDEXED = {"taken", "folder", "name", FILES}
_RESERVED = {"id", "embedding", "length", "note"}
_TYPES = {"text": 'text COLLATE "C"', "number": "double precision"}


def make(server: PostgresServer, address: PostgresAddress, shape: Shape, columns: Columns, description: str) -> None:
    """Create the tables of a store unless they exist."""
    server.maintain(_prepare)

    def call(connection: "Connection") -> None:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"sightline {address.name}"])
        if _exists(connection, address):
            return
        if not _one(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", address.name):
            run(connection, address, "CREATE SCHEMA {schema}")
        for statement in _statements(address, shape, columns):
            run(connection, address, statement)
        run(connection, address, "INSERT INTO {manifest} (body) VALUES (%s)", [description])

    server.transact(call)


def read_manifest(server: PostgresServer, address: PostgresAddress) -> str | None:
    """Return the description of a store; None if it does not exist."""

    def call(connection: "Connection") -> str | None:
        if not _exists(connection, address):
            return None
        rows = run(connection, address, "SELECT body FROM {manifest}").fetchall()
        return str(rows[0][0]) if rows else None

    return server.read(call)


def forget_writes(server: PostgresServer, address: PostgresAddress) -> None:
    """Delete the tokens of writes too old to be retried."""
    query = "DELETE FROM {writes} WHERE at < now() - interval '1 day'"
    server.transact(lambda connection: run(connection, address, query))


def built_index(server: PostgresServer, address: PostgresAddress) -> IndexName:
    """Return the index that a store has for its embeddings: `hnsw`, or `flat` if there is none."""
    query = "SELECT count(*) > 0 FROM pg_indexes WHERE schemaname = %s AND indexname = 'items_by_embedding'"
    has_index = server.read(lambda connection: _one(connection, query, address.name))
    return "hnsw" if has_index else "flat"


def index_if_large(server: PostgresServer, address: PostgresAddress, shape: Shape, items: int) -> None:
    """Index the embeddings of a large store all at once, which is faster than item by item."""
    if items < INDEX_FROM or shape.embedding > _HNSW_DIMENSIONS:
        return

    def call(connection: "Connection") -> None:
        connection.execute("SET LOCAL statement_timeout = 0")
        run(connection, address, _INDEX)

    server.transact(call)


def _prepare(connection: "Connection") -> None:
    """Install pgvector in the database if it is missing, and check its version."""
    query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    found = connection.execute(query).fetchone()
    if found is None:
        errors = driver().errors
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except errors.UniqueViolation:  # another process was faster
            pass
        except (errors.FeatureNotSupported, errors.UndefinedFile) as error:
            raise StoreError("the PostgreSQL server has no pgvector", "Install pgvector 0.8 or newer there.") from error
        except errors.InsufficientPrivilege as error:
            raise StoreError(
                "the database has no pgvector, and this user is not allowed to add it",
                "Have an administrator run: CREATE EXTENSION vector",
            ) from error
        found = connection.execute(query).fetchone()
        register(connection)
    version = str(found[0]) if found else "0"
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise StoreError(f"pgvector {version} is too old", "Update it to 0.8: ALTER EXTENSION vector UPDATE")


def _statements(address: PostgresAddress, shape: Shape, columns: Columns) -> list[str]:
    dim, storage = shape.embedding, "PLAIN" if shape.embedding <= _INLINE_DIMENSIONS else "EXTERNAL"
    foreign = "bigint NOT NULL REFERENCES {items} ON DELETE CASCADE"
    found = [
        "CREATE TABLE {writes} (token uuid PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())",
        "CREATE TABLE {manifest} (is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only), body text NOT NULL, "
        "version bigint NOT NULL DEFAULT 0, items bigint NOT NULL DEFAULT 0)",
        f"CREATE TABLE {{items}} (id bigint PRIMARY KEY, embedding halfvec({dim}) NOT NULL, length integer NOT NULL"
        f"{_declared(columns)}, note json NOT NULL)",
        f"ALTER TABLE {{items}} ALTER COLUMN embedding SET STORAGE {storage}",
        f"CREATE TABLE {{pictures}} (item {foreign} PRIMARY KEY, data bytea NOT NULL)",
        "ALTER TABLE {pictures} ALTER COLUMN data SET STORAGE EXTERNAL",
    ]
    if kept_parts(shape):
        found += [
            f"CREATE TABLE {{parts}} (item {foreign}, part text NOT NULL, records bytea NOT NULL, "
            "PRIMARY KEY (item, part))",
            "ALTER TABLE {parts} ALTER COLUMN records SET STORAGE EXTERNAL",
        ]
    found += [f"CREATE INDEX ON {{items}} ({quoted(name)})" for name in columns if name in _INDEXED]
    return [*found, _INDEX] if address.index == "hnsw" else found


def _declared(columns: Columns) -> str:
    return "".join(f", {quoted(name)} {_TYPES[kind]}" for name, kind in columns.items())


def quoted(name: str) -> str:
    """Return a column name in quotes; raises an error unless it is a plain name."""
    if not name.isidentifier() or not name.isascii() or name in _RESERVED:
        raise StoreError(f"a column cannot be called {name!r}")
    return f'"{name}"'


def _exists(connection: "Connection", address: PostgresAddress) -> bool:
    query = "SELECT to_regclass(quote_ident(%s) || '.' || quote_ident(%s)) IS NOT NULL"
    return bool(_one(connection, query, address.name, MANIFEST))


def _one(connection: "Connection", query: LiteralString, *values: Any) -> Any:
    found = connection.execute(query, values).fetchone()
    return None if found is None else found[0]
