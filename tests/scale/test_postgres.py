"""What is particular to a store in PostgreSQL: its index, several writers, lost connections, permissions."""

import io
import multiprocessing
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from collection.made_up import Instant
from scale.postgres import PASSWORD, PostgresTestServer
from sightline.bundle.encoded import Encoded
from sightline.collection import Collection, index
from sightline.errors import CollectionError, StoreError
from sightline.stores import postgres_schema
from sightline.stores.base import Shape
from sightline.stores.postgres import PostgresStore
from sightline.stores.postgres_address import parse_postgres_address
from stores.plain import SHAPE, items, queries

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'sightline-search[postgres]'")


def opened(url: str, shape: Shape = SHAPE, patience: float | None = None, write: bool = True) -> PostgresStore:
    return PostgresStore.open(parse_postgres_address(url), shape, write=write, patience=patience)


def run_sql(server: PostgresTestServer, *statements: str) -> list[tuple[object, ...]]:
    place = f"host=127.0.0.1 port={server.port} user=postgres password={PASSWORD} dbname=postgres"
    with psycopg.connect(place, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def store(postgres: PostgresTestServer) -> Iterator[PostgresStore]:
    store = opened(postgres.url())
    yield store
    store.close()


def test_a_store_that_has_grown_large_is_indexed_and_finds_nearly_all_of_the_nearest(
    postgres: PostgresTestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_schema, "INDEX_FROM", 3_000)
    rng, shape = np.random.default_rng(0), Shape(32)
    centres = rng.standard_normal((40, 32)).astype(np.float32)
    vectors = centres[rng.integers(0, 40, 3_000)] + 0.5 * rng.standard_normal((3_000, 32)).astype(np.float32)
    asked = centres[:30] + 0.5 * rng.standard_normal((30, 32)).astype(np.float32)
    url = postgres.url()
    store, other = opened(url, shape), opened(url, shape, write=False)
    store.add(np.arange(2_999), Encoded(vectors[:-1], np.zeros((2_999, 0), dtype=np.bool_)))
    store.close()
    store = opened(url, shape)
    assert store.stats().index == "postgresql, flat"
    store.add(np.array([2_999]), Encoded(vectors[-1:], np.zeros((1, 0), dtype=np.bool_)))
    exact, some = store.search(asked, 10), store.search(asked, 10, np.arange(0, 3_000, 300))
    store.compact()
    store.close()
    assert other.refresh()
    found = other.search(asked, 10)
    assert other.stats().index == "postgresql, hnsw"
    assert uses_index(postgres, other, asked[0])
    recall = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(exact.ids, found.ids, strict=True)])
    assert recall >= 0.98
    np.testing.assert_array_equal(other.search(asked, 10, np.arange(0, 3_000, 300)).ids, some.ids)
    other.close()


def uses_index(server: PostgresTestServer, store: PostgresStore, vector: np.ndarray) -> bool:
    asked = "[" + ",".join(map(str, vector.tolist())) + "]"
    query = f"EXPLAIN SELECT id FROM \"{store.address.name}\".items ORDER BY embedding <#> '{asked}'::halfvec LIMIT 26"
    return any("items_by_embedding" in str(line) for line in run_sql(server, query))


def write_some(url: str, first: int, ready: "multiprocessing.synchronize.Barrier") -> None:
    """Add, delete and add items again, in a process of its own."""
    store = opened(url)
    ready.wait(60)
    for start in range(first, first + 40, 10):
        store.add(*items(range(start, start + 10)))
    store.delete(np.arange(first, first + 5))
    store.close()


def test_several_processes_write_at_once(postgres: PostgresTestServer) -> None:
    url, context = postgres.url(), multiprocessing.get_context("fork")
    ready = context.Barrier(3)
    processes = [context.Process(target=write_some, args=(url, 100 * number, ready)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    store = opened(url)
    wanted = [id for number in range(3) for id in range(100 * number + 5, 100 * number + 40)]
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert store.ids().tolist() == wanted
    assert store.stats().items == len(wanted)
    assert store.fetch(np.array(wanted), "states").values.shape[0] == len(wanted)
    store.close()


def test_of_two_who_add_an_item_at_once_one_is_refused(store: PostgresStore) -> None:
    outcomes: list[str] = []
    ready = threading.Barrier(2)

    def add() -> None:
        ready.wait(60)
        try:
            store.add(*items(range(200)))
            outcomes.append("added")
        except StoreError as error:
            outcomes.append("refused" if "already exists" in error.what else error.what)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["added", "refused"]
    assert store.stats().items == len(store.ids()) == 200


def test_lost_connections_are_opened_again(postgres: PostgresTestServer, store: PostgresStore) -> None:
    store.add(*items(range(20)))
    before = store.search(queries(0, 2), 5)
    run_sql(postgres, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sightline'")
    np.testing.assert_array_equal(store.search(queries(0, 2), 5).ids, before.ids)
    run_sql(postgres, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sightline'")
    store.add(*items(range(20, 30)))
    assert store.stats().items == 30


def test_a_killed_server_has_all_that_was_acknowledged(tmp_path: Path, postgres: PostgresTestServer) -> None:
    server = PostgresTestServer(tmp_path / "own")
    server.start()
    try:
        url = server.url("killed")
        store, acknowledged = opened(url), list[int]()

        def write() -> None:
            for id in range(60):
                store.add(*items([id]))
                acknowledged.append(id)

        writer = threading.Thread(target=write)
        writer.start()
        for count in (10, 35):
            while len(acknowledged) < count and writer.is_alive():
                time.sleep(0.005)
            server.kill()
            time.sleep(0.2)
            server.start()
        writer.join(120)
        assert acknowledged == list(range(60))  # each exactly once: a second time would be refused
        assert store.ids().tolist() == acknowledged
        assert store.stats().items == 60
        server.kill()
        began = time.monotonic()
        with pytest.raises(StoreError, match=rf"no PostgreSQL server answers at 127\.0\.0\.1:{server.port}") as caught:
            opened(url, write=False, patience=1)
        assert time.monotonic() - began < 30
        assert "What was already written is safe" in caught.value.way_out
        store.close()
    finally:
        server.remove()


class Proxy(threading.Thread):
    """Passes a connection on to a server; when told to, it breaks it after the server has answered to a commit."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.listening, self.target, self.loses_commit = socket.create_server(("127.0.0.1", 0)), port, False
        self.port = self.listening.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self.target)) as server:
                self.pass_on(client, server)

    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for ready in select.select([client, server], [], [], 60)[0]:
                data = ready.recv(2**20)
                if not data:
                    return
                (server if ready is client else client).sendall(data)
                if ready is client and self.loses_commit and b"COMMIT" in data:
                    self.loses_commit = False
                    server.recv(2**20)
                    return


def test_a_commit_whose_answer_is_lost_is_not_repeated(postgres: PostgresTestServer) -> None:
    url = postgres.url()
    opened(url).close()
    proxy = Proxy(postgres.port)
    proxy.start()
    store = opened(url.replace(str(postgres.port), str(proxy.port)))
    proxy.loses_commit = True
    store.add(*items(range(5)))  # a second time would be refused
    assert not proxy.loses_commit
    assert store.ids().tolist() == [0, 1, 2, 3, 4]
    assert store.stats().items == 5
    store.close()
    proxy.listening.close()
    proxy.join()


@pytest.mark.parametrize("password", ["wrong-horse", ""])
def test_a_wrong_password_is_told_at_once_and_not_shown(
    postgres: PostgresTestServer, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", password)
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    began = time.monotonic()
    with pytest.raises(StoreError, match="password") as caught:
        opened(postgres.url())
    assert time.monotonic() - began < 20
    assert "PGPASSWORD" in caught.value.way_out
    assert "wrong-horse" not in str(caught.value)


def test_a_password_is_also_read_from_a_file(
    postgres: PostgresTestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:{postgres.port}:*:postgres:{PASSWORD}\n")
    file.chmod(0o600)
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", str(file))
    opened(postgres.url()).close()


def test_who_may_only_read_can_search(postgres: PostgresTestServer) -> None:
    url = postgres.url()
    store = opened(url)
    store.add(*items(range(9)))
    name = store.address.name
    run_sql(
        postgres,
        "DROP ROLE IF EXISTS reader",
        f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'",
        f'GRANT USAGE ON SCHEMA "{name}" TO reader',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{name}" TO reader',
    )
    reading = opened(url.replace("postgres@", "reader@"), write=False)
    np.testing.assert_array_equal(reading.search(queries(0, 2), 3).ids, store.search(queries(0, 2), 3).ids)
    with pytest.raises(StoreError, match="opened for reading only"):
        reading.delete(np.array([1]))
    with pytest.raises(StoreError, match="permission denied") as caught:
        opened(postgres.url().replace("postgres@", "reader@"))
    assert "administrator" in caught.value.way_out
    reading.close()
    store.close()
    run_sql(postgres, f'DROP SCHEMA "{name}" CASCADE', "DROP OWNED BY reader", "DROP ROLE reader")


def test_a_schema_with_other_tables_is_left_alone(postgres: PostgresTestServer) -> None:
    url = postgres.url()
    name = parse_postgres_address(url).name
    run_sql(postgres, f'CREATE SCHEMA "{name}"', f'CREATE TABLE "{name}".items (theirs integer)')
    with pytest.raises(StoreError, match="already exists"):
        opened(url)
    with pytest.raises(CollectionError, match="no collection at this URL"):
        Collection.open(url)
    assert run_sql(postgres, f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'") == [("items",)]


@pytest.mark.parametrize("kind", ["thumbnails", "originals", "none"])
def test_pictures_are_in_the_database(postgres: PostgresTestServer, tmp_path: Path, kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (900, 1_200, 3), dtype=np.uint8)
    photo = tmp_path / "photos" / "large.png"
    photo.parent.mkdir()
    Image.fromarray(pixels).save(photo, compress_level=1)
    url = postgres.url(options=f"pictures={kind}")
    index(photo.parent, at=tmp_path / "at", model=Instant(), store=url)
    index(photo.parent, at=tmp_path / "local", model=Instant())
    with Collection.open(url) as shared, Collection.open(tmp_path / "local") as local:
        found = shared.stored_image(shared.catalog.ids()[0])
        assert local.stored_image(1) is None
        assert shared.stored_image(99) is None
    if kind == "thumbnails":
        assert found is not None
        with Image.open(io.BytesIO(found)) as image:
            assert (image.format, image.size) == ("JPEG", (640, 480))
    else:
        assert found == (photo.read_bytes() if kind == "originals" else None)
