"""Bodies of requests: those of the wrong type, too large or too complex are refused before they cost anything."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from server.samples import application, ask, limits
from sightline.server.run import ServedCollection

IN_JSON = {"Content-Type": "application/json"}
WITH_JSON = ["/v1/search", "/v1/embed", "/v1/match", "/v1/download", "/v1/paths", "/v1/albums/A", "/v1/albums/A/remove"]
SMALL = [path for path in WITH_JSON if path not in ("/v1/embed", "/v1/match")]
EMOJI = "\N{DOG FACE}"  # takes twelve bytes in JSON


def refused(answer: httpx.Response, status: int) -> str:
    """Check that a request was refused with a short problem; returns its detail."""
    assert answer.status_code == status, answer.text[:1000]
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 10_000
    return str(answer.json()["detail"])


def sent(app: FastAPI, path: str, body: bytes | str) -> httpx.Response:
    return ask(app, "POST", path, content=body, headers=IN_JSON)


async def in_parts(part: bytes, count: int) -> AsyncIterator[bytes]:
    """A body whose length the client does not tell."""
    for _ in range(count):
        yield part


@pytest.mark.parametrize("path", WITH_JSON)
def test_json_with_more_values_than_any_request_needs_is_refused_before_it_is_parsed(app: FastAPI, path: str) -> None:
    for body in (
        "[" + "[]," * 30_000 + "[]]",
        "{" + ",".join(f'"{number:x}":0' for number in range(15_000)) + "}",
        "[" + "0," * 60_000 + "0]",
        "[" + '"",' * 50_000 + '""]',
    ):
        assert "values" in refused(sent(app, path, body), 422)


@pytest.mark.parametrize("path", SMALL)
def test_only_requests_that_may_contain_images_are_large(app: FastAPI, path: str) -> None:
    assert refused(sent(app, path, b" " * 262_145), 413) == "the request is larger than 256 kB"
    assert ask(app, "POST", path, content=in_parts(b" " * 200_000, 2), headers=IN_JSON).status_code == 413
    assert sent(app, path, b" " * 262_144).status_code == 422


def test_requests_with_images_may_have_twenty_megabytes(app: FastAPI) -> None:
    for path in ("/v1/embed", "/v1/match"):
        assert refused(sent(app, path, b" " * (20 * 2**20 + 1)), 413) == "the request is larger than 20 MB"
        assert "MB" not in refused(sent(app, path, b" " * (20 * 2**20)), 422)
    form = {"files": {"image": ("a.png", b" " * (2 * 2**20), "image/png")}}
    assert refused(ask(app, "POST", "/v1/search", **form), 422).startswith("the picture ")


@pytest.mark.parametrize("path", ["/v1/session", "/v1/items/1/reveal", "/v1/none"])
def test_requests_that_need_no_body_cannot_have_a_large_one(app: FastAPI, path: str) -> None:
    assert ask(app, "POST", path, content=b" " * 300_000).status_code == 413
    assert ask(app, "GET", "/v1/collection", content=b" " * 300_000).status_code == 413


def test_a_string_that_does_not_end_is_found_out_at_once(app: FastAPI) -> None:
    began = time.monotonic()
    assert sent(app, "/v1/paths", b"[]" * 20 + b'"' + b'\\"' * 60_000 + b"\\").status_code == 422
    assert time.monotonic() - began < 10  # it took half a minute for a third of this


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be"])
def test_json_must_be_in_utf_8(app: FastAPI, encoding: str) -> None:
    for path in WITH_JSON:
        assert "UTF-8" in refused(sent(app, path, '{"ids": [1]}'.encode(encoding)), 422)


def test_the_largest_valid_requests_are_answered(app: FastAPI, ids: dict[str, int]) -> None:
    largest: list[tuple[str, dict[str, Any]]] = [
        ("/v1/search", {"q": EMOJI * 1000, "not": [EMOJI * 1000] * 8, "where": f"name != '{EMOJI * 1980}'"}),
        ("/v1/search", {"q": '[{,"\\' * 200, "not": ['",]}'] * 8, "rerank": 0}),
        ("/v1/embed", {"texts": ['{[",' * 250] * 64, "images": [], "lang": None}),
        ("/v1/match", {"pairs": [{"text": "a", "image": None, "id": ids["beach/1.png"]}] * 64, "lang": None}),
        ("/v1/paths", {"ids": [ids["beach/1.png"], *range(2**53 - 9999, 2**53)]}),
    ]
    for path, body in largest:
        answer = sent(app, path, json.dumps(body, indent=0))
        assert answer.status_code == 200, (path, answer.text[:200])


# Errors


@pytest.mark.parametrize("path", ["/v1/search", "/v1/embed", "/v1/match", "/v1/paths", "/v1/download"])
def test_only_the_first_of_many_errors_are_reported(app: FastAPI, path: str) -> None:
    answer = sent(app, path, json.dumps({f"{number}-{'x' * 1000}": 0 for number in range(60)}))
    refused(answer, 422)
    assert len(answer.json()["errors"]) == 20
    refused(sent(app, "/v1/paths", json.dumps({"ids": [0] * 10_000})), 422)


@pytest.mark.parametrize("path", ["/v1/search", "/v1/explain", "/v1/understand", "/v1/items", "/v1/none"])
def test_a_query_string_has_a_bounded_number_of_parameters(app: FastAPI, path: str) -> None:
    answer = ask(app, "GET", f"{path}?{'&'.join(f'{number:x}=' for number in range(9000))}")
    assert refused(answer, 422) == "more than 64 parameters in the query string"
    asked = [("q", "a dog"), ("rerank", 0), *[("not", "a cat")] * 8, *[("not", "")] * 54]
    assert len(ask(app, "GET", "/v1/search", params=asked).json()["errors"]) <= 20
    assert ask(app, "GET", "/v1/search", params=asked[:10]).status_code == 200
    refused(ask(app, "GET", f"/v1/search?q=a&{'x' * 50_000}=1"), 422)


# Content types


@pytest.mark.parametrize("kind", ["text/plain", "application/x+json", "application/jsonx", "text/json", "", "json"])
@pytest.mark.parametrize("path", WITH_JSON)
def test_other_content_types_are_refused_and_the_right_ones_named(app: FastAPI, path: str, kind: str) -> None:
    answer = ask(app, "POST", path, content=b'{"ids": [1]}', headers={"Content-Type": kind} if kind else {})
    assert refused(answer, 415) == f"unsupported content type: {kind or 'none'}"
    assert "application/json" in answer.json()["way_out"]


def test_a_content_type_may_have_parameters_and_capitals(app: FastAPI, ids: dict[str, int]) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    for path in ("/v1/paths", "/v1/download"):
        body = json.dumps({"ids": [ids["beach/1.png"]]})
        assert ask(app, "POST", path, content=body, headers=headers).status_code == 200


def test_the_bodies_of_all_requests_together_are_limited(opened: ServedCollection) -> None:
    app = application(opened, limits(all_bodies_bytes=300_000))
    path, half = "/v1/paths", b" " * 150_000

    async def run() -> None:
        began, may_end = asyncio.Event(), asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield half
            began.set()
            await may_end.wait()
            yield half[:50_000]

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=IN_JSON) as client:
            slow = asyncio.create_task(client.post(path, content=slowly()))
            await began.wait()
            busy = await client.post(path, content=half + b" ")
            assert refused(busy, 503) == "too much is being sent at once"
            assert busy.headers["retry-after"] == "1"
            assert (await client.post(path, content=half)).status_code == 422
            assert (await client.get("/v1/collection")).status_code == 200
            may_end.set()
            assert (await slow).status_code == 422
            assert (await client.post(path, content=half + b" ")).status_code == 422

    asyncio.run(run())
