"""A URL names a store of PostgreSQL, and says what is wrong with it when it does not."""

import pytest

from sightline.errors import StoreError
from sightline.stores.postgres_address import PostgresAddress, parse_postgres_address


def test_a_url_says_where_a_store_is_and_how_it_is_kept() -> None:
    url = "postgresql://app@db.example.org:5433/shop/photos?sslmode=verify-full&index=flat&pictures=originals"
    address = parse_postgres_address(url)
    assert address == PostgresAddress(
        "db.example.org", 5433, "shop", "photos", "app", "flat", "originals", "verify-full"
    )
    assert str(address) == url


def test_what_is_left_out_is_as_libpq_has_it() -> None:
    address = parse_postgres_address("postgres:///shop")
    assert address == PostgresAddress("", None, "shop", "sightline")
    assert str(address) == "postgresql:///shop/sightline"
    assert parse_postgres_address(str(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://[::1]:5/a/b",
        "postgresql:///a/b?host=/run/postgresql",
        "postgresql://me%40work@db/my%20shop/b",
        "postgresql://db.example.org/a/b?pictures=none",
    ],
)
def test_urls_are_written_as_they_are_read(url: str) -> None:
    assert str(parse_postgres_address(url)) == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://localhost", "has no database name"),
        ("postgresql://localhost/", "has no database name"),
        ("postgresql:/localhost/shop/photos", "not the URL of a PostgreSQL store"),
        ("http://localhost/shop/photos", "not the URL of a PostgreSQL store"),
        ("postgresql://localhost/a%00b/photos", "has no valid database name"),
        ("postgresql://localhost/shop/my photos", "invalid store name"),
        ("postgresql://localhost/shop/pg_photos", "invalid store name"),
        ("postgresql://localhost/shop/a/b", "invalid store name"),
        ('postgresql://localhost/shop/a"b', "invalid store name"),
        ("postgresql://localhost/shop/" + "a" * 64, "invalid store name"),
        ("postgresql://one,two/shop/photos", "invalid host"),
        ("postgresql://localhost/shop/photos?host=/run", "invalid host"),
        ("postgresql:///shop/photos?host=elsewhere", "invalid host"),
        ("postgresql://localhost:many/shop/photos", "cannot be read"),
        ("postgresql://localhost/shop/photos?index=best", "index cannot be 'best'"),
        ("postgresql://localhost/shop/photos?sslrootcert=/etc/passwd", "unknown option 'sslrootcert'"),
        ("postgresql://me:secret@localhost/shop/photos", "password"),
        ("postgresql://me:secret@localhost:many/shop/photos", "cannot be read"),
        ("postgresql://localhost/shop/photos?password=secret", "password"),
    ],
)
def test_what_names_no_store_is_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        parse_postgres_address(url)
    assert caught.value.way_out
    assert "secret" not in str(caught.value)
