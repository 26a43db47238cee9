"""What must not happen, whatever a client sends: each rule of the server's safety, tried."""

import asyncio
import base64
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import sightline
from server.samples import LIMITS, TOKEN, application, ask, bomb, limits, picture
from server.served import opening, served
from sightline.bundle import Bundle
from sightline.collection.catalog.database import Catalog
from sightline.errors import ServeError
from sightline.media.decoder import DecoderProcess
from sightline.server import access
from sightline.server.access import Rate, check_exposure, is_loopback
from sightline.server.problems import RefusedError
from sightline.server.run import ServedCollection, uvicorn_config

GIGABYTE = 2**30
ONLY_HERE = picture(4321)  # no other test has made a thumbnail of it


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Check that an answer is a problem of the one shape, with all headers, and tells nothing of the inside."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert_safe_headers(answer)
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    required = {"type", "title", "status", "detail"}
    assert required <= set(found) <= required | {"way_out", "errors"}
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    return found


def test_a_link_opened_in_a_browser_says_in_words_what_is_wrong(client: httpx.Client) -> None:
    answer = client.get("/v1/items/999999/image", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert answer.text == "No item has the id 999999. It may have been deleted; search again."
    assert_safe_headers(answer)


@pytest.mark.parametrize(
    ("path", "headers", "words"),
    [
        ("/v1/items/1", {}, "The token is missing or wrong. Send the header Authorization: Bearer TOKEN."),
        ("/", {"Sec-Fetch-Site": "cross-site"}, "Requests from other websites are refused. Open"),
        (f"/?{'a&' * 64}", {}, "More than 64 parameters in the query string."),
    ],
)
def test_a_browser_is_refused_in_words_before_a_route_is_reached(
    opened: ServedCollection, path: str, headers: dict[str, str], words: str
) -> None:
    app = application(opened, token=TOKEN)
    answer = ask(app, "GET", path, headers={"Accept": "text/html,*/*;q=0.8", **headers})
    assert (answer.status_code // 100, answer.headers["content-type"]) == (4, "text/plain; charset=utf-8")
    assert answer.text.startswith(words)
    assert_safe_headers(answer)


def assert_safe_headers(answer: httpx.Response) -> None:
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/search?q=a", "/v1/items/1/image", "/docs", "/metrics", "/none"])
def test_every_answer_has_the_headers_that_keep_a_browser_safe(client: httpx.Client, path: str) -> None:
    assert_safe_headers(client.get(path, headers={"Origin": "https://evil.example"}))


# Files


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/index.html/../app.py",
        "/../app.py",
        "/page/../app.py",
        "//etc/passwd",
        "/v1/items/../../../etc/passwd/image",
        "/v1/items/%2e%2e%2f%2e%2e%2fetc%2fpasswd/image",
        "/v1/items/1%2f..%2f..%2f/image",
        "/v1/items/1/image/../../../../../etc/passwd",
        "/v1/items/etc/image",
        "/v1/items/-1/image",
        "/v1/items/0/thumbnail",
        "/v1/items/1e3/image",
        f"/v1/items/{2**63}/image",
        f"/v1/items/{10**400}/image",
        "/v1/items/1%00/image",
        "/index.html%00.png",
        "/index%2ehtml/",
    ],
)
def test_no_path_leads_to_a_file_that_is_not_of_the_collection(client: httpx.Client, path: str) -> None:
    request = client.build_request("GET", "/")
    request.url = httpx.URL(client.base_url).copy_with(raw_path=path.encode())  # httpx would tidy up the path
    answer = client.send(request)
    problem(answer, answer.status_code)
    assert answer.status_code in (404, 422)
    assert b"root:" not in answer.content


def test_an_id_that_does_not_exist_is_a_problem_everywhere(client: httpx.Client) -> None:
    for path in ("", "/image", "/thumbnail", "/similar"):
        assert "4711" in problem(client.get(f"/v1/items/4711{path}"), 404)["detail"]
    problem(client.get("/v1/explain", params={"q": "a dog", "id": 4711}), 404)
    problem(client.post("/v1/match", json={"pairs": [{"text": "a", "id": 4711}]}), 404)


@pytest.fixture
def changing(tmp_path: Path, tiny_bundle: Path) -> Iterator[tuple[FastAPI, Path]]:
    """An application over a collection of one picture, and that picture."""
    path = tmp_path / "photos" / "a.png"
    path.parent.mkdir()
    path.write_bytes(ONLY_HERE)
    sightline.index(path.parent, model=tiny_bundle)
    with opening(path.parent) as opened:
        yield application(opened), path


def test_a_file_is_sent_only_while_it_is_what_was_indexed(changing: tuple[FastAPI, Path], tmp_path: Path) -> None:
    app, path = changing
    assert ask(app, "GET", "/v1/items/1/image").content == ONLY_HERE
    secret = tmp_path / "secret"
    secret.write_text("a password")
    path.unlink()
    problem(ask(app, "GET", "/v1/items/1/image"), 404)
    path.symlink_to(secret)
    assert "password" not in ask(app, "GET", "/v1/items/1/image").text
    problem(ask(app, "GET", "/v1/items/1/image"), 404)
    path.unlink()
    path.write_bytes(picture(2))
    problem(ask(app, "GET", "/v1/items/1/thumbnail?side=640"), 404)
    path.unlink()
    os.mkfifo(path)
    problem(ask(app, "GET", "/v1/items/1/image"), 404)
    path.unlink()
    path.write_bytes(ONLY_HERE)
    assert ask(app, "GET", "/v1/items/1/image").content == ONLY_HERE


# Uploads


def connected(address: str) -> socket.socket:
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port or 80), timeout=20)


def answer_of(connection: socket.socket) -> tuple[int, bytes]:
    """The status and body of a raw answer, up to the end of the connection."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_a_gigabyte_is_refused_before_it_is_sent(client: httpx.Client) -> None:
    with connected(str(client.base_url)) as connection:
        connection.sendall(
            b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
            b"Content-Length: %d\r\n\r\n" % GIGABYTE
        )
        began = time.monotonic()
        status, body = answer_of(connection)
    assert status == 413
    assert json.loads(body)["status"] == 413
    assert time.monotonic() - began < 5


def test_a_gigabyte_without_a_length_is_refused_while_it_is_sent(client: httpx.Client) -> None:
    chunk = b"x" * 2**16
    sent = 0
    with connected(str(client.base_url)) as connection:
        connection.sendall(
            b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        try:
            while sent < GIGABYTE:
                connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                sent += len(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert sent < LIMITS.upload_bytes + 30 * 2**20  # what the limit allows, and what the network holds
    assert client.get("/healthz").status_code == 200


def test_a_client_is_not_told_where_the_python_of_the_server_is(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hint = "/srv/venv/bin/python -m pip install 'sightline-search[heic]'"
    answer = {"reason": f"is a HEIC picture, which needs another package: {hint}", "way_out": hint, "missing": True}
    monkeypatch.setattr(DecoderProcess, "request", lambda *arguments: (answer, b""))
    told = ask(application(opened), "POST", "/v1/search", files={"image": ("a.heic", b"-", "image/heic")})
    assert problem(told, 422)["detail"] == "the server cannot read this kind of picture"
    assert "/srv" not in told.text
    assert hint in caplog.text


def test_an_upload_is_bounded_also_where_its_length_is_a_lie(opened: ServedCollection) -> None:
    app = application(opened, limits(body_bytes=1000, upload_bytes=1500))
    asked = {"q": "a" * 900, "where": "b" * 900}
    problem(ask(app, "POST", "/v1/search", json=asked, headers={"Content-Length": "10"}), 413)
    problem(ask(app, "POST", "/v1/search", json=asked), 413)
    problem(ask(app, "POST", "/v1/search", files={"image": ("a.png", bytes(1500), "image/png")}), 413)


def test_a_decompression_bomb_is_refused_unopened(client: httpx.Client) -> None:
    sent = bomb()
    assert len(sent) < 300_000
    began = time.monotonic()
    told = problem(client.post("/v1/search", files={"image": ("a.png", sent, "image/png")}), 422)
    assert "too many pixels" in told["detail"]
    encoded = base64.b64encode(sent).decode()
    problem(client.post("/v1/embed", json={"images": [encoded]}), 422)
    problem(client.post("/v1/match", json={"pairs": [{"text": "a", "image": encoded}]}), 422)
    assert time.monotonic() - began < 5


def test_what_is_no_picture_is_refused_with_the_reason(client: httpx.Client) -> None:
    for data in (b"", b"GIF89a", b"<svg/>", picture(1)[:60], b"%!PS run this"):
        told = problem(client.post("/v1/search", files={"image": ("a.png", data, "image/png")}), 422)
        assert told["detail"].startswith("the picture ")


def test_too_many_items_at_once_are_refused(client: httpx.Client) -> None:
    problem(client.post("/v1/embed", json={"texts": ["a"] * 65}), 422)
    problem(client.post("/v1/match", json={"pairs": [{"text": "a", "id": 1}] * 65}), 422)
    problem(client.get("/v1/search", params={"q": "a" * 1001}), 422)
    problem(client.get("/v1/search", params={"q": "a", "k": 201}), 422)
    problem(client.get("/v1/search", params={"q": "a", "rerank": 101}), 422)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"q": "a"}', "text/plain"),
        (b"q=a", "application/x-www-form-urlencoded"),
        (b"{}", ""),
        (b"{}", "application/jsonx"),
    ],
)
def test_other_content_types_are_refused(client: httpx.Client, content: bytes, kind: str) -> None:
    for path in ("/v1/search", "/v1/embed", "/v1/match"):
        headers = {"Content-Type": kind} if kind else {}
        problem(client.post(path, content=content, headers=headers), 415)


def test_a_picture_must_be_sent_as_one(client: httpx.Client) -> None:
    problem(client.post("/v1/search", files={"image": ("a.html", picture(1), "text/html")}), 415)
    no_file = client.post("/v1/search", files={"q": (None, "a dog"), "image": (None, "photo.jpg")})
    assert problem(no_file, 422)["detail"] == "image is not a file"
    problem(client.post("/v1/search", files={"other": ("a.png", picture(1), "image/png")}), 422)
    two = [("image", ("a.png", picture(1), "image/png")), ("image", ("b.png", picture(2), "image/png"))]
    problem(client.post("/v1/search", files=two), 400)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"q": "\\ud800"}', b'{"q": "a", "k": NaN}', b'{"q": "  "}', b"[" * 100_000]
)
def test_broken_json_is_a_problem_not_a_failure(client: httpx.Client, body: bytes) -> None:
    for path in ("/v1/search", "/v1/embed", "/v1/match"):
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        problem(answer, answer.status_code)
        assert answer.status_code in (400, 422)


NESTED = b"[" * 200 + b"]" * 200


@pytest.mark.parametrize("body", [NESTED, b'{"q": %b}' % NESTED, b'{"texts": %b}' % NESTED, b'{"\\"":' * 50])
def test_deeply_nested_json_is_refused_before_it_is_parsed(client: httpx.Client, body: bytes) -> None:
    for path in ("/v1/search", "/v1/embed", "/v1/match"):
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert "nested" in problem(answer, 422)["detail"]


def test_brackets_in_texts_are_no_nesting(client: httpx.Client) -> None:
    assert client.post("/v1/search", json={"q": "[{" * 100 + '"[', "rerank": 0}).status_code == 200
    assert client.post("/v1/embed", json={"texts": ["[[{{"] * 60}).status_code == 200


# Tokens


@pytest.fixture(scope="module")
def guarded(opened: ServedCollection) -> FastAPI:
    return application(opened, limits(rate=1000, burst=100_000), host="0.0.0.0", token=TOKEN)


PROTECTED = [
    "/v1/search?q=a",
    "/v1/items/1",
    "/v1/items/1/image",
    "/v1/collection",
    "/metrics",
    "/docs",
    "/openapi.json",
]


@pytest.mark.parametrize("path", [*PROTECTED, "/V1/search?q=a", "//v1/search", "/nothing"])
def test_nothing_is_told_without_the_token(guarded: FastAPI, path: str) -> None:
    problem(ask(guarded, "GET", path), 401)
    for header in (
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer ",
        "Bearer",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer é",
    ):
        answer = ask(guarded, "GET", path, headers={"Authorization": header.encode()})
        assert answer.headers["www-authenticate"].startswith("Bearer")
        problem(answer, 401)


@pytest.mark.parametrize("path", PROTECTED)
def test_the_token_opens_everything(guarded: FastAPI, path: str) -> None:
    assert ask(guarded, "GET", path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_page_and_health_need_no_token(guarded: FastAPI) -> None:
    assert ask(guarded, "GET", "/").status_code == ask(guarded, "GET", "/healthz").status_code == 200


def test_a_browser_gets_a_cookie_that_is_not_the_token(guarded: FastAPI) -> None:
    problem(ask(guarded, "POST", "/v1/session"), 401)
    answer = ask(guarded, "POST", "/v1/session", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    own = cookie.partition(";")[0]
    assert ask(guarded, "GET", "/v1/items/1/image", headers={"Cookie": own}).status_code == 200
    problem(ask(guarded, "GET", "/v1/items/1/image", headers={"Cookie": own[:-1]}), 401)
    problem(ask(guarded, "GET", "/v1/items/1/image", headers={"Cookie": f"sightline-8000={TOKEN}"}), 401)


def test_servers_on_one_host_do_not_log_each_other_out(opened: ServedCollection) -> None:
    cookies: dict[str, str] = {"a[b]": "of another program"}  # browsers send all cookies of a host to each of its ports
    apps = [application(opened, token=TOKEN, port=port) for port in (8000, 8001)]
    for app in apps:
        answer = ask(app, "POST", "/v1/session", headers={"Authorization": f"Bearer {TOKEN}"})
        cookies.update([answer.headers["set-cookie"].partition(";")[0].split("=", 1)])
    shown = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    assert [ask(app, "GET", "/v1/items/1/image", headers=shown).status_code for app in apps] == [200, 200]


def test_tokens_are_compared_in_constant_time(guarded: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, wanted: bytes) -> bool:
        compared.append((given, wanted))
        return True

    monkeypatch.setattr(access.hmac, "compare_digest", compare)
    assert ask(guarded, "GET", "/v1/collection", headers={"Authorization": "Bearer guess"}).status_code == 200
    assert compared == [(b"guess", TOKEN.encode())]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_another_address_than_this_machines_own_needs_a_token(host: str) -> None:
    assert not is_loopback(host)
    for token in (None, "", "  "):
        with pytest.raises(ServeError, match="token"):
            check_exposure(host, token)
    check_exposure(host, "a token")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "::1", "localhost"])
def test_this_machines_own_address_needs_none(host: str) -> None:
    check_exposure(host, None)


def test_another_name_for_this_machine_is_refused_where_there_is_no_token(app: FastAPI, guarded: FastAPI) -> None:
    for name in ("evil.example", "127.0.0.1.evil.example", "", "[::1", "localhost.evil.example:8000"):
        problem(ask(app, "GET", "/v1/collection", headers={"Host": name}), 421)
    for name in ("127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"):
        assert ask(app, "GET", "/v1/collection", headers={"Host": name}).status_code == 200
    shown = {"Host": "photos.example", "Authorization": f"Bearer {TOKEN}"}
    assert ask(guarded, "GET", "/v1/collection", headers=shown).status_code == 200


@pytest.mark.parametrize("token", ["", " ", "a b ", "schlüssel", "a\nb", "\x00"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with pytest.raises(ServeError, match="token"):
        check_exposure("127.0.0.1", token)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
def test_requests_for_a_page_of_another_site_are_refused(
    app: FastAPI, guarded: FastAPI, headers: dict[str, str]
) -> None:
    headers = {**headers, "Authorization": f"Bearer {TOKEN}"}
    for served_app in (app, guarded):
        for method, path in (("GET", "/v1/items/1/image"), ("GET", "/v1/search?q=a"), ("POST", "/v1/search")):
            problem(ask(served_app, method, path, headers=headers), 403)


def test_the_own_page_and_programs_are_answered(app: FastAPI) -> None:
    for headers in (
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://behind-a-proxy.example"},
    ):
        assert ask(app, "GET", "/v1/collection", headers=headers).status_code == 200


def test_a_link_of_another_site_may_lead_to_the_page(app: FastAPI) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(app, "GET", "/?q=a+dog", headers=headers).status_code == 200
    problem(ask(app, "GET", "/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}), 403)


# Rates


def test_a_public_server_slows_down_a_client_that_asks_too_often(opened: ServedCollection) -> None:
    app = application(opened, limits(rate=0.01, burst=3), host="0.0.0.0", token=TOKEN)
    statuses = [ask(app, "GET", "/healthz").status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    answer = ask(app, "GET", "/healthz")
    assert int(answer.headers["retry-after"]) >= 1
    problem(answer, 429)
    spoofed = {"X-Forwarded-For": "198.51.100.1", "Forwarded": "for=198.51.100.1"}
    problem(ask(app, "GET", "/healthz", headers=spoofed), 429)
    assert ask(app, "GET", "/healthz", client="198.51.100.1").status_code == 200


def test_what_a_proxy_might_say_of_a_client_is_not_believed(app: FastAPI) -> None:
    assert not uvicorn_config(app, LIMITS).proxy_headers  # anybody can say it


def test_a_server_for_this_machine_alone_counts_nobody(opened: ServedCollection) -> None:
    app = application(opened, limits(rate=0.5, burst=1))
    assert {ask(app, "GET", "/healthz").status_code for _ in range(5)} == {200}


def test_a_bucket_fills_up_again_and_an_ipv6_network_has_one() -> None:
    now = [0.0]
    rate = Rate(2.0, 2, lambda: now[0])
    for _ in range(2):
        rate.check("2001:db8::1")
    with pytest.raises(RefusedError):
        rate.check("2001:db8::ffff")
    rate.check("2001:db8:0:1::1")
    now[0] = 0.5
    rate.check("2001:db8::2")
    with pytest.raises(RefusedError):
        rate.check("2001:db8::2")


def test_ipv4_clients_of_a_server_at_all_ipv6_addresses_have_a_bucket_each() -> None:
    rate = Rate(1.0, 1, lambda: 0.0)
    rate.check("::ffff:203.0.113.7")
    rate.check("::ffff:203.0.113.8")
    with pytest.raises(RefusedError):
        rate.check("203.0.113.7")


def test_the_clients_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_MOST_CLIENTS", 10)
    rate = Rate(1.0, 1, lambda: 0.0)
    for number in range(100):
        rate.check(f"10.0.0.{number}")
    assert len(rate._buckets) == 10


# Time, failures and clients that leave


class Stuck:
    """Makes matching wait until it is let go, and counts how often it began."""

    def __init__(self, opened: ServedCollection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.began = threading.Semaphore(0)
        self.count = 0
        model = Bundle
        match = model.match

        def slow(own: Any, *arguments: Any) -> Any:
            self.count += 1
            self.began.release()
            assert self.free.wait(20)
            return match(own, *arguments)

        monkeypatch.setattr(model, "match", slow)


@pytest.fixture
def stuck(opened: ServedCollection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    found = Stuck(opened, monkeypatch)
    yield found
    found.free.set()


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_work_for_a_client_that_left_is_dropped(client: httpx.Client, stuck: Stuck) -> None:
    left = 'sightline_requests_total{route="/v1/search",status="0"}'
    before = metric(client, left)
    connections = []
    for _ in range(3):
        connection = connected(str(client.base_url))
        connection.sendall(b"GET /v1/search?q=a+dog HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connections.append(connection)
    assert stuck.began.acquire(timeout=10)
    wait_for(lambda: metric(client, "sightline_requests_in_flight") == 4)
    for connection in connections:
        connection.close()
    wait_for(lambda: metric(client, left) == before + 3)
    assert metric(client, "sightline_requests_in_flight") == 1
    stuck.free.set()
    assert client.get("/v1/search", params={"q": "a dog"}).status_code == 200
    assert stuck.count == 2  # the match that ran when its client left, and the last; those that waited never began


def test_a_client_that_leaves_while_it_sends_is_forgotten(client: httpx.Client) -> None:
    with connected(str(client.base_url)) as connection:
        connection.sendall(
            b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        wait_for(lambda: metric(client, "sightline_requests_in_flight") == 2)
    wait_for(lambda: metric(client, "sightline_requests_in_flight") == 1)


def test_a_request_that_takes_too_long_is_given_up(opened: ServedCollection, stuck: Stuck) -> None:
    app = application(opened, limits(seconds=2))
    told = problem(ask(app, "GET", "/v1/search?q=a dog"), 503)
    assert "2 s" in told["detail"]
    assert ask(app, "GET", "/v1/search?q=a dog&rerank=0").status_code == 200


def test_a_body_that_comes_too_slowly_is_given_up(opened: ServedCollection) -> None:
    app = application(opened, limits(seconds=0.3))
    with served(app) as address, connected(address) as connection:
        connection.sendall(
            b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        status, _ = answer_of(connection)
    assert status == 408


def test_filters_that_take_too_long_are_interrupted_and_hold_up_nobody(
    opened: ServedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = "count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)"
    monkeypatch.setattr(Catalog, "ids_where", lambda own, where: own.select(endless, ()))
    app = application(opened, limits(seconds=0.5, waiting=0))

    async def ask_all() -> tuple[list[int], float]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=20) as asking:
            tasks = [asyncio.create_task(asking.get("/v1/items?where=id>0")) for _ in range(32)]
            await asyncio.sleep(0.1)
            began = time.monotonic()
            assert (await asking.get("/healthz")).status_code == 200
            took = time.monotonic() - began
            statuses = [(await task).status_code for task in tasks]
            await asyncio.sleep(1)
            return [*statuses, (await asking.get("/v1/items/1")).status_code], took

    statuses, took = asyncio.run(ask_all())
    assert statuses == [503] * 32 + [200]
    assert took < 8


def test_more_than_can_wait_are_turned_away(opened: ServedCollection, stuck: Stuck) -> None:
    app = application(opened, limits(waiting=0, seconds=15))

    async def ask_all() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=20) as asking:
            tasks = [asyncio.create_task(asking.get("/v1/search?q=a dog")) for _ in range(40)]
            await asyncio.sleep(0)
            while sum(task.done() for task in tasks) < 8:
                await asyncio.sleep(0.01)
            assert (await asking.get("/v1/search?q=a dog&rerank=0")).status_code == 200
            stuck.free.set()
            return sorted([(await task).status_code for task in tasks])

    assert asyncio.run(ask_all()) == [200] * 32 + [503] * 8


def test_a_failure_tells_the_log_and_not_the_client(
    app: FastAPI, opened: ServedCollection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("/home/somebody/secret")

    monkeypatch.setattr(opened.service, "about", fail)
    answer = ask(app, "GET", "/v1/collection")
    problem(answer, 500)
    assert "secret" not in answer.text
    assert "/home/somebody/secret" in caplog.text


def test_a_failure_that_sightline_foresaw_tells_no_path_either(
    app: FastAPI, opened: ServedCollection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise sightline.errors.StoreError("/home/somebody/secret is gone")

    monkeypatch.setattr(opened.service, "about", fail)
    answer = ask(app, "GET", "/v1/collection")
    problem(answer, 500)
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_methods_that_do_not_exist_are_problems(client: httpx.Client) -> None:
    problem(client.delete("/v1/items/1"), 405)
    answer = client.put("/v1/search")
    problem(answer, 405)
    assert answer.headers["allow"] == "GET, POST"
    problem(client.get("/v1/embed"), 405)
