"""Browsing over HTTP: months, pages with a cursor, folders of several roots, examples, and HEAD."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import sightline
from server.samples import application, fill, picture
from server.served import opening, served
from sightline.server.run import addresses, own_addresses


def test_every_item_is_reached_by_following_the_cursor(client: httpx.Client, ids: dict[str, int]) -> None:
    seen: list[int] = []
    answer = client.get("/v1/timeline/items", params={"k": 4}).json()
    while True:
        seen += [item["id"] for item in answer["items"]]
        if "next" not in answer:
            break
        answer = client.get("/v1/timeline/items", params={"k": 4, "after": answer["next"]}).json()
    assert len(seen) == len(set(seen)) == answer["total"]
    assert set(seen) == set(ids.values())
    assert client.get("/v1/timeline/items", params={"start": 3, "k": 2}).json()["items"][0]["id"] == seen[3]
    assert client.get("/v1/timeline/items", params={"start": 10**6}).json()["items"] == []


def test_months_add_up_and_a_filter_narrows_them(client: httpx.Client) -> None:
    answer = client.get("/v1/timeline").json()
    assert sum(month["items"] for month in answer["months"]) == answer["total"]
    fewer = client.get("/v1/timeline", params={"where": "folder = 'beach'"}).json()
    assert 0 < fewer["total"] < answer["total"]
    assert client.get("/v1/timeline/items", params={"after": "odd"}).status_code == 422


def test_searches_go_beyond_the_first_page(client: httpx.Client) -> None:
    def found(**more: int) -> list[int]:
        answer = client.get("/v1/search", params={"q": "a dog", "rerank": 0, "duplicates": "show", **more})
        return [hit["id"] for hit in answer.json()["hits"]]

    assert found(k=3) + found(k=20, start=3) == found(k=20)


def test_head_is_answered_as_get_is_without_the_body(client: httpx.Client, ids: dict[str, int]) -> None:
    for form in ("image", "thumbnail"):
        address = f"/v1/items/{next(iter(ids.values()))}/{form}"
        head, whole = client.head(address), client.get(address)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
        assert head.headers["content-length"] == str(len(whole.content))


@pytest.fixture(scope="module")
def two_roots(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Iterator[httpx.Client]:
    first = fill(tmp_path_factory.mktemp("roots") / "First", 2)
    second = first.parent / "Second"
    (second / "sea").mkdir(parents=True)
    (second / "sea" / "x.png").write_bytes(picture(50))
    sightline.index([first, second], at=first, model=tiny_bundle)
    with opening(first) as found, served(application(found)) as address, httpx.Client(base_url=address) as client:
        yield client


def test_a_second_root_shows_in_folders_and_results(two_roots: httpx.Client) -> None:
    folders = {(one.get("root"), one["path"]): one["items"] for one in two_roots.get("/v1/filters").json()["folders"]}
    assert folders == {
        ("First", ""): 2,
        ("First", "beach"): 1,
        ("First", "town"): 1,
        ("Second", ""): 1,
        ("Second", "sea"): 1,
    }
    items = two_roots.get("/v1/timeline/items", params={"where": "root = 'Second'"}).json()["items"]
    assert [(item["root"], item["path"]) for item in items] == [("Second", "sea/x.png")]
    hits = two_roots.get("/v1/search", params={"q": "a dog", "where": "root = 'Second'"}).json()["hits"]
    assert [(hit["root"], hit["path"]) for hit in hits] == [("Second", "sea/x.png")]


def test_a_single_root_is_not_named(client: httpx.Client) -> None:
    assert all("root" not in item for item in client.get("/v1/timeline/items").json()["items"])
    assert all("root" not in folder for folder in client.get("/v1/filters").json()["folders"])


def test_examples_are_searches_for_what_there_is(client: httpx.Client) -> None:
    examples = client.get("/v1/examples").json()["examples"]
    assert len(examples) == len(set(examples)) <= 6


def test_a_server_for_other_machines_tells_an_address_that_they_can_open() -> None:
    assert addresses("127.0.0.1", 8000) == ["http://127.0.0.1:8000/"]
    everywhere = addresses("0.0.0.0", 8000)
    assert everywhere[0] == "http://127.0.0.1:8000/"
    assert everywhere[1:] == [f"http://{own}:8000/" for own in own_addresses()]
    assert "http://0.0.0.0:8000/" not in everywhere
