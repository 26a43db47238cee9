"""Clients that open connections and are slow, or never say anything, take nothing from others."""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import pytest
from fastapi import FastAPI, Response
from PIL import Image

import sightline
from server.samples import application, ask, fill, limits
from server.served import Served, opening, served
from sightline.collection import Report
from sightline.server.log_limits import LogLimit
from sightline.server.metrics import resident_bytes
from sightline.server.run import ServedCollection
from sightline.server.updater import CollectionUpdater

STRICT = limits(connections=40, connections_per_address=30, header_seconds=1.0, write_seconds=1.0)


@pytest.fixture
def address(app: FastAPI) -> Iterator[str]:
    with served(app, STRICT) as found:
        yield found


def connect(address: str, sent: bytes = b"") -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_sent_requests_block_nobody(address: str) -> None:
    connections = [connect(address, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b") for _ in range(200)]
    began = time.monotonic()
    with httpx.Client(base_url=address, timeout=10) as client:
        for _ in range(5):
            assert client.get("/v1/search?q=a&rerank=0").status_code == 200
    assert time.monotonic() - began < 5
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: y"])
def test_a_request_whose_head_does_not_come_is_given_up(address: str, sent: bytes) -> None:
    with connect(address, sent) as connection:
        began = time.monotonic()
        assert is_closed(connection)
    assert time.monotonic() - began < 8


def test_a_head_that_comes_byte_by_byte_is_given_up(address: str) -> None:
    with connect(address) as connection:
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - began < 10:
                connection.sendall(b"X")
                time.sleep(0.1)
        assert time.monotonic() - began < 8


UPLOAD = (
    b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)


def test_uploads_that_never_end_keep_nobody_out(address: str) -> None:
    uploads = [connect(address, UPLOAD) for _ in range(60)]  # twice as many as one address may have
    time.sleep(0.3)
    with httpx.Client(base_url=address, timeout=10) as client:
        for _ in range(5):
            assert client.get("/v1/search?q=a&rerank=0").status_code == 200
    for connection in uploads:
        connection.close()


FEW = limits(connections_per_address=5, stall_seconds=0.5)


@pytest.fixture
def crowded(app: FastAPI) -> Iterator[str]:
    with served(app, FEW) as found:
        yield found


class Clients:
    """Connections to a server, which are closed in the end."""

    def __init__(self, address: str) -> None:
        self._address, self._open = address, contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def idle(self) -> socket.socket:
        """A client that got a response, and has sent nothing since."""
        found = self._open.enter_context(connect(self._address, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
        assert b"200 OK" in response(found)
        return found

    def upload(self, length: int = 1000) -> socket.socket:
        """A client that sent the headers of a request, but nothing of its body."""
        sent = UPLOAD.removesuffix(b"{").replace(b"1000", str(length).encode())
        return self._open.enter_context(connect(self._address, sent))


def response(connection: socket.socket) -> bytes:
    """Receive a response whose body is JSON."""
    received = b""
    while not received.endswith(b"}"):
        part = connection.recv(2**16)
        assert part
        received += part
    return received


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True


def test_idle_connections_are_closed_before_an_upload_in_progress(crowded: str) -> None:
    body = b'{"q": "a dog", "rerank": 0}'.ljust(60)
    with Clients(crowded) as clients:
        first, *_ = [clients.idle() for _ in range(4)]
        upload = clients.upload(len(body))
        for byte in body[:-1]:
            upload.sendall(bytes([byte]))
            time.sleep(0.02)
        for _ in range(5):
            clients.idle()
        upload.sendall(body[-1:])
        assert is_closed(first)
        assert b"200 OK" in response(upload)


def test_a_stalled_upload_is_closed_first(crowded: str) -> None:
    with Clients(crowded) as clients:
        moving, stalled = clients.upload(), clients.upload()
        others = [clients.idle() for _ in range(3)]
        for _ in range(8):
            moving.sendall(b"{")
            time.sleep(0.1)
        others.append(clients.idle())
        assert is_closed(stalled)
        assert all(is_open(connection) for connection in [moving, *others])


def test_an_upload_in_progress_is_closed_if_the_other_connections_are_uploads_too(crowded: str) -> None:
    with Clients(crowded) as clients:
        first, second, *others = [clients.upload() for _ in range(5)]
        time.sleep(0.1)
        first.sendall(b"{")
        time.sleep(0.1)
        new = clients.idle()
        assert is_closed(second)
        assert all(is_open(connection) for connection in [first, *others, new])


def test_a_server_that_stops_does_not_wait_for_an_upload_that_never_ends(app: FastAPI) -> None:
    server = Served(app, limits(stop_seconds=0.5)).start()
    with connect(server.address, UPLOAD):
        time.sleep(0.3)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5


def test_connections_being_answered_are_not_closed_for_others(address: str) -> None:
    with httpx.Client(base_url=address, timeout=10) as client:
        assert client.get("/healthz").status_code == 200
        slow = threading.Thread(target=lambda: [connect(address).close() for _ in range(100)])
        slow.start()
        for _ in range(20):
            assert client.get("/v1/search?q=a").status_code == 200
        slow.join()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Iterator[ServedCollection]:
    """A collection with a picture of 30 MB."""
    folder = fill(tmp_path_factory.mktemp("large"), 1)
    noise = np.random.default_rng(0).integers(0, 255, (3200, 3200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.png", compress_level=0)
    sightline.index(folder, model=tiny_bundle)
    with opening(folder) as found:
        yield found


def id_of(opened: ServedCollection, path: str) -> int:
    with opened.current.use() as collection:
        items = collection.items(collection.catalog.ids())
    return next(id for id, item in items.items() if item.files[0].path == path)


def test_a_large_picture_is_sent_whole(large: ServedCollection) -> None:
    with served(application(large)) as address:
        answer = httpx.get(f"{address}/v1/items/{id_of(large, 'noise.png')}/image", timeout=30)
    with large.current.use() as collection:
        file = collection.item(id_of(large, "noise.png")).files[0].where
    assert answer.content == file.read_bytes()
    assert answer.headers["content-length"] == str(len(answer.content))


def test_those_who_read_slowly_take_no_memory_and_are_given_up(large: ServedCollection) -> None:
    path = f"/v1/items/{id_of(large, 'noise.png')}/image"
    with served(application(large, STRICT), STRICT) as address:
        httpx.get(address + path, timeout=30)
        before = resident_bytes() or 0
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        connections = [connect(address, request) for _ in range(10)]
        time.sleep(1.5)
        assert (resident_bytes() or 0) - before < 100 * 2**20
        assert httpx.get(f"{address}/v1/search?q=a&rerank=0").status_code == 200
        time.sleep(5)
        for connection in connections:
            received = 0
            while part := _part(connection):
                received += part
            assert received < 20 * 2**20
            connection.close()


def test_a_server_that_stops_does_not_wait_for_those_who_read_slowly(large: ServedCollection) -> None:
    path = f"/v1/items/{id_of(large, 'noise.png')}/image"
    server = Served(application(large), limits(stop_seconds=0.5)).start()
    with connect(server.address, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()) as connection:
        assert connection.recv(100)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5


def test_a_server_that_stops_sends_a_response_to_those_who_read_it(large: ServedCollection) -> None:
    server = Served(application(large)).start()
    request = f"GET /v1/items/{id_of(large, 'noise.png')}/image HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(server.address, request.encode()) as connection:
        received = len(connection.recv(100))
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while part := _part(connection):
            received += part
        stopping.join()
    assert received > 3200 * 3200 * 3


def slow_to_compute() -> FastAPI:
    """An application that takes a second to compute a response of 20 MB."""
    app = FastAPI()

    @app.get("/")
    async def large() -> Response:
        await asyncio.sleep(1)
        return Response(bytes(20 * 2**20))

    return app


def test_a_server_that_stops_does_not_wait_for_those_who_read_slowly_what_was_still_computed() -> None:
    server = Served(slow_to_compute(), limits(stop_seconds=0.3)).start()
    with connect(server.address, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        time.sleep(0.2)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5


def test_a_server_that_stops_gives_clients_time_to_read_what_was_still_computed() -> None:
    server = Served(slow_to_compute(), limits(stop_seconds=0.8)).start()
    with connect(server.address, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as connection:
        time.sleep(0.2)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        time.sleep(1.2)
        received = 0
        while part := _part(connection):
            received += part
        stopping.join()
    assert received > 20 * 2**20


def _part(connection: socket.socket) -> int:
    try:
        return len(connection.recv(2**20))
    except ConnectionResetError:
        return 0


def test_a_message_that_is_logged_again_and_again_is_written_a_few_times() -> None:
    now = [0.0]
    limit = LogLimit(most=3, seconds=60, clock=lambda: now[0])

    def log(number: int) -> logging.LogRecord | None:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed: %s", (number,), None)
        return record if limit.filter(record) else None

    assert [log(number) is not None for number in range(1000)] == [True] * 3 + [False] * 997
    now[0] = 61.0
    record = log(1000)
    assert record is not None
    assert "997 more" in record.getMessage()


class Broken:
    """A collection that cannot be opened again."""

    is_available = True

    def __init__(self, error: Exception) -> None:
        self.is_broken, self._error = True, error

    def renew(self) -> bool:
        if self.is_broken:
            raise self._error
        return False


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), sightline.CollectionError("it was indexed with another model")]
)
def test_a_server_that_cannot_follow_its_collection_is_alive_but_not_ready(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    monkeypatch.setattr("sightline.server.updater._LOOK_SECONDS", 0.01)
    current: Any = Broken(error)
    updater = CollectionUpdater(current, tmp_path, opened.model, watch=False)
    app = application(opened, is_ready=lambda: updater.is_healthy)
    assert ask(app, "GET", "/readyz").status_code == 503  # not started
    updater.start()
    try:
        wait_until(lambda: ask(app, "GET", "/readyz").status_code == 503)
        assert ask(app, "GET", "/healthz").status_code == 200
        current.is_broken = False
        wait_until(lambda: ask(app, "GET", "/readyz").status_code == 200)
    finally:
        updater.close()
    assert ask(app, "GET", "/readyz").status_code == 503


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), sightline.CollectionError("it is damaged")])
def test_a_server_that_cannot_index_changes_is_not_ready(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failures: list[Exception] = [sightline.errors.CollectionInUseError("it is being written to")]
    runs = 0

    def index(**options: object) -> Report:
        nonlocal runs
        runs += 1
        if failures:
            raise failures[0]
        return Report(Path(opened.at), "images")

    monkeypatch.setattr("sightline.server.updater.index", index)
    updater = CollectionUpdater(opened.current, Path(opened.at), opened.model, watch=True, seconds=0.001)
    app = application(opened, is_ready=lambda: updater.is_healthy)
    updater.start()
    try:
        wait_until(lambda: runs > 6)
        assert ask(app, "GET", "/readyz").status_code == 200  # whoever writes to it indexes the changes
        failures[0] = error
        wait_until(lambda: ask(app, "GET", "/readyz").status_code == 503)
        assert ask(app, "GET", "/v1/search?q=a+dog").status_code == 200
        failures.clear()
        wait_until(lambda: ask(app, "GET", "/readyz").status_code == 200)
    finally:
        updater.close()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
