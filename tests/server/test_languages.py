"""Searching in another language over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

import sightline
from server.samples import LIMITS
from server.served import opening, served
from sightline.server.app import create_app


@pytest.fixture(scope="module")
def client(german_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("colours")
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2023:08:01 10:00:00"
    for colour in ("red", "green", "blue"):
        Image.new("RGB", (40, 30), colour).save(folder / f"{colour}.jpg", exif=exif)
    sightline.index(folder, model=german_bundle)
    with (
        opening(folder, LIMITS) as found,
        served(create_app(found.service)) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("more", [{"rerank": 0}, {}, {"rerank": 0, "where": "width > 1"}])
def test_the_answer_says_which_language_was_used(client: httpx.Client, more: dict[str, int]) -> None:
    def asked(**given: str) -> dict[str, object]:
        answer: dict[str, object] = client.get("/v1/search", params={**more, **given}).raise_for_status().json()
        return answer

    german, forced, english = asked(q="Hund am Strand"), asked(q="Hund am Strand", lang="en"), asked(q="a dog")
    assert (german["lang"], forced["lang"], english["lang"]) == ("de", "en", "en")
    assert german["hits"] != forced["hits"]


def test_searches_of_two_languages_at_once_do_not_mix(client: httpx.Client) -> None:
    from concurrent.futures import ThreadPoolExecutor

    queries = ["Hund am Strand", "a dog on the beach", "ein Kind am Strand", "a child on the beach"] * 6
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda q: client.get("/v1/search", params={"q": q, "rerank": 0}).json(), queries))
    alone = {q: client.get("/v1/search", params={"q": q, "rerank": 0}).json()["hits"] for q in set(queries)}
    assert [answer["lang"] for answer in answers] == ["de", "en", "de", "en"] * 6
    assert all(answer["hits"] == alone[q] for q, answer in zip(queries, answers, strict=True))


def test_a_language_that_the_model_lacks_is_refused(client: httpx.Client) -> None:
    answer = client.get("/v1/search", params={"q": "un chien", "lang": "fr"})
    assert answer.status_code == 422
    assert "reads en, de" in answer.json()["detail"]
    assert client.get("/v1/search", params={"q": "x", "lang": "Deutsch!"}).status_code == 422


def test_the_collection_lists_its_languages(client: httpx.Client) -> None:
    assert client.get("/v1/collection").json()["languages"] == ["en", "de"]


def test_explaining_embedding_and_matching_take_a_language(client: httpx.Client) -> None:
    german, english = (
        client.get("/v1/explain", params={"q": "Hund", "id": 1, "lang": lang}).raise_for_status().json()
        for lang in ("de", "en")
    )
    assert german["words"] != english["words"]
    for path, body in (("/v1/embed", {"texts": ["hund"]}), ("/v1/match", {"pairs": [{"text": "hund", "id": 1}]})):
        plain = client.post(path, json=body).raise_for_status().json()
        own = client.post(path, json={**body, "lang": "de"}).raise_for_status().json()
        assert own != plain


def test_phrases_are_understood_in_english_only(client: httpx.Client) -> None:
    english = client.get("/v1/understand", params={"q": "a dog on the beach in August 2023"}).json()
    assert (english["words"], english["lang"]) == ("a dog on the beach", "en")
    german = client.get("/v1/understand", params={"q": "Hund August 2023", "lang": "de"}).json()
    assert german == {"words": "Hund August 2023", "phrases": [], "lang": "de"}
