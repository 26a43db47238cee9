"""Text in pictures and phrases of a query, over HTTP."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import sightline
from server.samples import application, fill
from server.served import opening, served
from sightline.collection.image_text.database import TextDatabase, TextRead
from sightline.media.ocr import TextLine
from sightline.server.run import ServedCollection

LINE = TextLine("Beware of the dog", ((0.1, 0.1), (0.9, 0.1), (0.9, 0.2), (0.1, 0.2)))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Iterator[tuple[Path, ServedCollection, str]]:
    """Eight pictures, of which the first has text."""
    folder = fill(tmp_path_factory.mktemp("photos"))
    at = sightline.index(folder, model=tiny_bundle).at
    with sightline.open(folder) as collection:
        hash = collection.catalog.hash_of(1)
    database = TextDatabase.open(at, write=True)
    assert database
    assert hash
    database.add([TextRead(hash, [LINE])])
    database.close()
    with opening(folder) as found, served(application(found)) as address:
        yield at, found, address


@pytest.fixture(scope="module")
def asking(own: tuple[Path, ServedCollection, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own[2], timeout=30) as client:
        yield client


def test_a_hit_quotes_the_text_that_it_was_found_by(asking: httpx.Client) -> None:
    for parameters in ({"q": '"beware of"'}, {"q": "beware of the dog", "rerank": 0}, {"q": "beware of the dog"}):
        hits = asking.get("/v1/search", params=parameters).json()["hits"]
        (hit,) = [hit for hit in hits if hit["id"] == 1]
        assert (hit["stage"], hit["quote"]) == ("text", "Beware of the dog")
        assert hit["rank"] <= 2
    assert asking.get("/v1/collection").json()["text"] == {"read": 1, "with_text": 1}


def test_the_places_of_words_are_told(asking: httpx.Client) -> None:
    found = asking.get("/v1/items/1/text", params={"q": "a dog"}).json()["lines"]
    assert [line["text"] for line in found] == ["Beware of the dog"]
    ((top_left, _, bottom_right, _),) = found[0]["marks"]
    assert top_left[0] == pytest.approx(0.1 + 0.8 * 14 / 17, abs=0.01)
    assert bottom_right == [0.9, 0.2]
    assert asking.get("/v1/items/1/text").json()["lines"][0]["marks"] == []
    assert asking.get("/v1/items/2/text").json() == {"id": 2, "lines": []}
    assert asking.get("/v1/items/999/text").status_code == 404


def test_phrases_of_a_query_become_filters_but_not_in_quotes(asking: httpx.Client) -> None:
    found = asking.get("/v1/understand", params={"q": "a dog in the folder beach"}).json()
    assert found["words"] == "a dog"
    (phrase,) = found["phrases"]
    assert (phrase["kind"], phrase["text"], phrase["label"]) == ("folder", "in the folder beach", "beach")
    assert found["where"] == f"({phrase['where']})"
    total = asking.get("/v1/timeline", params={"where": found["where"]}).json()["total"]
    assert total == 4
    for parameters in (
        {"q": "a dog in the folder beach", "literal": "in the folder beach"},
        {"q": "a dog"},
    ):
        left = asking.get("/v1/understand", params=parameters).json()
        assert left == {"words": parameters["q"], "phrases": []}
    quoted = asking.get("/v1/understand", params={"q": '"in the folder beach"'}).json()
    assert quoted == {"words": '"in the folder beach"', "phrases": []}
    assert asking.get("/v1/understand", params={"q": " "}).status_code == 422


def test_a_server_reads_text_in_the_background(own: tuple[Path, ServedCollection, str], asking: httpx.Client) -> None:
    pytest.importorskip("rapidocr_onnxruntime", reason="the extra ocr is not installed")
    told: list[str] = []
    (updater,) = own[1].updaters(watch=False, notify=told.append, read_text=True)
    updater.start()
    try:
        deadline = time.monotonic() + 120
        while not told and time.monotonic() < deadline:
            time.sleep(0.1)
            assert asking.get("/v1/search", params={"q": "a dog", "rerank": 0}).status_code == 200
        assert updater.is_healthy
    finally:
        updater.close()
    assert told[0].startswith("text read: 0 of 7 images have text")
    assert asking.get("/v1/collection").json()["text"] == {"read": 8, "with_text": 1}
