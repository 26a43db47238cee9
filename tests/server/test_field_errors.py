"""What is wrong with a request is said as a person would say it."""

import json

import httpx
import pytest
from fastapi import FastAPI

from server.samples import ask


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/search", "q is missing"),
        ("/v1/search?q=", "q must not be empty"),
        ("/v1/search?q=%20%20", "q must not be blank"),
        (f"/v1/search?q={'a' * 1001}", "q is too long: at most 1,000 characters"),
        ("/v1/search?q=a&not=", "not.0 must not be empty"),
        ("/v1/search?q=a&k=x", "k must be a whole number"),
        ("/v1/search?q=a&k=0", "k must be at least 1"),
        ("/v1/search?q=a&start=100001", "start must be at most 100,000"),
        ("/v1/search?q=a&late=some", "late must be a whole number from 0 to 1,000, or all"),
        ("/v1/search?q=a&late=1001", "late must be a whole number from 0 to 1,000, or all"),
        ("/v1/search?q=a&min_relevance=2", "min_relevance must be at most 1"),
        ("/v1/search?q=a&budget_ms=0", "budget_ms must be more than 0"),
        ("/v1/search?q=a&duplicates=hide", "duplicates must be 'fold' or 'show'"),
        ("/v1/search?q=a&weight=inf", "weight must be a finite number"),
        ("/v1/search?q=a&lang=German", "lang must have the form ^[a-z]{2,3}$"),
        ("/v1/search?q=a&{x}=1", "{x} is not a known field"),
        ("/v1/search?k=0&late=x&foo=1&bar=2", "q is missing; k must be at least 1; late must be a whole number"),
        ("/v1/items/x", "id must be a whole number"),
        (f"/v1/items?where={'a' * 2001}", "where is too long: at most 2,000 characters"),
        ("/v1/understand?q=a&literal=b&literal=", "literal.1 must not be empty"),
    ],
)
def test_a_parameter_is_named_with_what_is_wrong(app: FastAPI, path: str, detail: str) -> None:
    answer = ask(app, "GET", path)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)
    where, _, what = detail.partition(" ")
    assert answer.json()["errors"][0] == {"where": where, "what": what} or ";" in detail


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/search", "{", "the body is not valid JSON: "),
        ("/v1/embed", '{"texts": [', "the body is not valid JSON: "),
        ("/v1/embed", "", "the body is missing"),
        ("/v1/search", "[]", "the body must be an object"),
        ("/v1/embed", "[]", "the body must be an object"),
        ("/v1/search", '{"q": 1}', "q must be text"),
        ("/v1/search", '{"q": "a", "not": "b"}', "not must be a list"),
        ("/v1/search", '{"q": "a", "late": true}', "late must be a whole number from 0 to 1,000, or all"),
        ("/v1/embed", json.dumps({"texts": ["a"] * 65}), "texts is too long: at most 64 values"),
        ("/v1/embed", '{"texts": ["a", "\\ud800"]}', "texts.1 is not valid Unicode"),
        ("/v1/match", '{"pairs": []}', "pairs must not be empty"),
        ("/v1/match", '{"pairs": [{"text": "a"}]}', "pairs.0 must have either image or id"),
        ("/v1/match", '{"pairs": [{"text": "a", "id": 0}]}', "pairs.0.id must be at least 1"),
        ("/v1/paths", '{"ids": [1.5]}', "ids.0 must be a whole number"),
    ],
)
def test_a_field_of_a_body_is_named_with_what_is_wrong(app: FastAPI, path: str, body: str, detail: str) -> None:
    answer: httpx.Response = ask(app, "POST", path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)
    for of_pydantic in ("Input", "String", "pattern", "constrained"):
        assert of_pydantic not in answer.text
