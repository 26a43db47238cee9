"""The OpenAPI document is true: whatever it allows is answered as it says, whatever it forbids is refused."""

from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import negative_data_rejection, positive_data_acceptance

from sightline.server import actions

OPERATIONS = [
    ("GET", "/v1/search"),
    ("POST", "/v1/search"),
    ("GET", "/v1/explain"),
    ("GET", "/v1/filters"),
    ("GET", "/v1/timeline"),
    ("GET", "/v1/timeline/items"),
    ("GET", "/v1/examples"),
    ("GET", "/v1/understand"),
    ("GET", "/v1/items"),
    ("GET", "/v1/items/{id}"),
    ("GET", "/v1/items/{id}/camera"),
    ("GET", "/v1/items/{id}/text"),
    ("GET", "/v1/items/{id}/image"),
    ("GET", "/v1/items/{id}/video"),
    ("GET", "/v1/items/{id}/thumbnail"),
    ("GET", "/v1/items/{id}/similar"),
    ("POST", "/v1/download"),
    ("POST", "/v1/paths"),
    ("POST", "/v1/items/{id}/reveal"),
    ("GET", "/v1/albums"),
    ("POST", "/v1/albums/{name}"),
    ("POST", "/v1/albums/{name}/remove"),
    ("POST", "/v1/embed"),
    ("POST", "/v1/match"),
    ("GET", "/v1/collection"),
    ("POST", "/v1/session"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
]
WITHOUT_INPUT = {
    "/v1/filters",
    "/v1/examples",
    "/v1/albums",
    "/v1/collection",
    "/v1/session",
    "/healthz",
    "/readyz",
    "/metrics",
}
OF_TEXTS = {"/v1/understand"}
SETTINGS = hypothesis.settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)


@pytest.fixture(autouse=True)
def _opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be asked to show a folder; no test is to open a file manager."""
    monkeypatch.setattr(actions, "open_folder", lambda folder: None)


@pytest.fixture(scope="module")
def described(client: httpx.Client) -> Any:
    return schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")


@pytest.mark.filterwarnings("ignore")  # the tester's own
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [(*operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
    + [(*operation, GenerationMode.NEGATIVE) for operation in OPERATIONS if operation[1] not in WITHOUT_INPUT],
)
def test_the_server_keeps_to_its_description(described: Any, method: str, path: str, mode: GenerationMode) -> None:
    @SETTINGS
    @hypothesis.given(case=described[path][method].as_strategy(generation_mode=mode))
    def holds(case: schemathesis.Case) -> None:
        # What a filter may say is a language of its own, which no schema tells; so valid requests may be refused.
        # In a query string, a list of numbers or of lists is a list of texts: nothing is wrong with it.
        excluded = [positive_data_acceptance] + [negative_data_rejection] * (path in OF_TEXTS)
        case.call_and_validate(excluded_checks=excluded, timeout=20)

    holds()


def test_every_address_is_described(client: httpx.Client) -> None:
    paths = set(client.get("/openapi.json").json()["paths"])
    assert paths == {path for _, path in OPERATIONS}


def test_operations_have_short_names_for_generated_clients(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(set(names)) == len(names)
    assert {"search", "items", "similar", "add_to_album", "remove_from_album"} <= set(names)
