"""Execute statements through psycopg, with the names of a store's tables filled in."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.errors import StoreError
from sightline.packages import install_extra
from sightline.stores.postgres_address import PostgresAddress

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

MANIFEST = "sightline_manifest"
_TABLES = ("items", "parts", "pictures", "writes")


def driver() -> Any:
    """Import psycopg, which may not be installed."""
    try:
        import psycopg
    except ImportError as error:
        raise StoreError(f"PostgreSQL needs a package: {error}", install_extra("postgres")) from error
    return psycopg


def run(connection: "Connection", address: PostgresAddress, query: str, values: Any = None, **options: Any) -> Any:
    """Execute a query, with the quoted names of the store's tables in place of `{items}` and the like."""
    return connection.execute(_with_names(address, query), values, **options)


def run_many(connection: "Connection", address: PostgresAddress, query: str, rows: Sequence[Any]) -> None:
    """Execute a query once for each row of values."""
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_with_names(address, query), rows)


def _with_names(address: PostgresAddress, query: str) -> Any:
    sql = driver().sql
    names = {table: sql.Identifier(address.name, table) for table in _TABLES}
    names |= {"manifest": sql.Identifier(address.name, MANIFEST), "schema": sql.Identifier(address.name)}
    return sql.SQL(query).format(**names)
