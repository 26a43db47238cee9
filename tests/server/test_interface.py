"""What the server answers is what the library finds."""

import base64
import dataclasses
import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import sightline
from server.samples import application, ask, fill, limits, picture
from server.served import opening, served
from sightline.bundle import Bundle
from sightline.bundle.model import Calibration
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import write_spec
from sightline.collection import Collection
from sightline.media import ImageBytes, to_pixels
from sightline.server import browse
from sightline.server.current_collection import CurrentCollection
from sightline.server.decoders import DecoderPool
from sightline.server.library import Library
from sightline.server.run import ServedCollection


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [hit["path"] for hit in answer.json()["hits"]]


def test_a_search_by_words_finds_what_the_library_finds(client: httpx.Client, collection: Collection) -> None:
    expected = collection.search("a red dog", k=5, rerank=3)
    answer = client.get("/v1/search", params={"q": "a red dog", "k": 5, "rerank": 3})
    assert names(answer) == [hit.path for hit in expected]
    found = answer.json()
    assert found["query"] == "a red dog"
    assert set(found["took_ms"]) == {"encode", "retrieve", "interact", "match"}
    assert [hit["stage"] for hit in found["hits"]] == [hit.stage for hit in expected]
    assert [hit["score"] for hit in found["hits"]] == pytest.approx([hit.score for hit in expected], abs=1e-4)


def test_the_same_search_as_json_finds_the_same(client: httpx.Client) -> None:
    query = {"q": "a dog", "not": ["snow", "water"], "where": "folder = 'beach'", "k": 3, "rerank": 0}
    by_query = client.get("/v1/search", params=query)
    assert names(client.post("/v1/search", json=query)) == names(by_query)
    assert all(name.startswith("beach/") for name in names(by_query))


def test_what_is_not_wanted_and_filters_are_passed_on(client: httpx.Client, collection: Collection) -> None:
    for options in ({"not": "a blue circle"}, {"where": "name = '3.png'"}, {"duplicates": "show"}, {"late": 8}):
        answer = client.get("/v1/search", params={"q": "a dog", "rerank": 0, "k": 4, **options})
        asked = {"not_" if name == "not" else name: value for name, value in options.items()}
        assert names(answer) == [hit.path for hit in collection.search("a dog", rerank=0, k=4, **asked)]


def test_everything_is_ranked_by_its_parts_where_that_is_asked_for(
    client: httpx.Client, collection: Collection, opened: ServedCollection
) -> None:
    asked = {"q": "a red dog", "late": "all", "rerank": 2, "k": 9}
    expected = collection.search("a red dog", late="all", rerank=2, k=9)
    for answer in (client.get("/v1/search", params=asked), client.post("/v1/search", json=asked)):
        assert names(answer) == [hit.path for hit in expected]
        found = answer.json()
        assert [hit["stage"] for hit in found["hits"]] == ["match"] * 2 + ["late"] * (len(expected) - 2)
        assert found["took_ms"]["interact"] > found["took_ms"]["retrieve"]
    assert client.get("/v1/search", params={**asked, "late": "some"}).status_code == 422
    few = application(opened, limits(late_all=len(collection) - 1))
    refused = ask(few, "GET", "/v1/search", params=asked)
    assert refused.status_code == 422
    assert "late cannot be 'all'" in refused.json()["detail"]


def test_a_search_by_picture_finds_that_picture(client: httpx.Client) -> None:
    answer = client.post("/v1/search", files={"image": ("5.png", picture(5), "image/png")}, data={"k": "2"})
    assert names(answer)[0] == "beach/5.png"


def test_a_search_by_words_and_picture_finds_what_the_library_finds(
    client: httpx.Client, collection: Collection
) -> None:
    expected = collection.search("a small bird", image=picture(5), image_weight=0.3, not_=["snow"], k=4)
    answer = client.post(
        "/v1/search",
        files={"image": ("x.png", picture(5), "image/png")},
        data={"q": "a small bird", "image_weight": "0.3", "not": "snow", "k": "4"},
    )
    assert names(answer) == [hit.path for hit in expected]


def test_results_name_no_path_of_the_machine(client: httpx.Client, photos: Path) -> None:
    answer = client.get("/v1/search", params={"q": "a dog", "k": 9, "duplicates": "show"})
    assert str(photos) not in answer.text
    hits = {hit["path"]: hit for hit in answer.json()["hits"]}
    assert hits["town/0.png"]["copies"] == ["town/copy.png"]


def test_an_item_tells_what_is_known_of_it(client: httpx.Client, ids: dict[str, int]) -> None:
    found = client.get(f"/v1/items/{ids['town/0.png']}").json()
    assert (found["path"], found["copies"], found["width"], found["height"]) == (
        "town/0.png",
        ["town/copy.png"],
        40,
        30,
    )
    assert client.get(found["image"]).status_code == client.get(found["thumbnail"]).status_code == 200


def test_more_like_this_is_nearest_first_and_leaves_out_the_item_itself(
    client: httpx.Client, collection: Collection, ids: dict[str, int]
) -> None:
    id = ids["beach/3.png"]
    answer = client.get(f"/v1/items/{id}/similar", params={"k": 4})
    all_ids = np.array(collection.catalog.ids())
    vectors = collection.store.fetch(all_ids, "embedding").values[:, 0]
    cosines = dict(zip(all_ids.tolist(), vectors @ vectors[all_ids.tolist().index(id)], strict=True))
    found = {hit["id"]: hit["score"] for hit in answer.json()["hits"]}
    assert len(found) == 4
    assert id not in found
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert found == {other: pytest.approx(cosines[other], abs=1e-4) for other in found}
    assert next(iter(found)) == max(cosines.keys() - {id}, key=lambda other: cosines[other])


def test_a_picture_comes_back_byte_for_byte(client: httpx.Client, ids: dict[str, int]) -> None:
    answer = client.get(f"/v1/items/{ids['beach/3.png']}/image")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content == picture(3)


def test_a_picture_that_browsers_do_not_show_comes_as_a_jpeg(client: httpx.Client, ids: dict[str, int]) -> None:
    answer = client.get(f"/v1/items/{ids['rare.tiff']}/image")
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).size == (40, 30)


def test_images_of_two_collections_have_different_urls(client: httpx.Client, tmp_path: Path, tiny_bundle: Path) -> None:
    """Else a browser shows the images of the collection that was served at this port before."""
    (tmp_path / "other.png").write_bytes(picture(1234))
    sightline.index(tmp_path, model=tiny_bundle)
    with opening(tmp_path) as other:
        theirs = ask(application(other), "GET", "/v1/items/1").json()
        ours = client.get("/v1/items/1").json()
        for form in ("image", "thumbnail"):
            assert theirs[form] != ours[form]
            assert "immutable" in client.get(ours[form]).headers["cache-control"]
            assert client.get(theirs[form]).status_code == 404
            plain = client.get(f"/v1/items/1/{form}")
            assert (plain.status_code, plain.headers["cache-control"]) == (200, "private, no-cache")


def test_a_thumbnail_is_made_once_and_not_sent_twice(
    client: httpx.Client, ids: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/v1/items/{ids['beach/7.png']}/thumbnail?side=100"
    first = client.get(address)
    assert max(Image.open(io.BytesIO(first.content)).size) == 40
    monkeypatch.setattr(DecoderPool, "thumbnail", None)
    assert client.get(address).content == first.content
    again = client.get(address, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert client.get(address, headers={"If-None-Match": '"another"'}).status_code == 200


@pytest.mark.parametrize(
    ("size", "thumbnail"), [((1200, 800), (160, 107)), ((1200, 300), (320, 80)), ((100, 2000), (32, 640))]
)
def test_the_thumbnail_of_a_panorama_is_long_enough_to_show_its_middle(
    tmp_path: Path, tiny_bundle: Path, size: tuple[int, int], thumbnail: tuple[int, int]
) -> None:
    (tmp_path / "wide.png").write_bytes(picture(1, size))
    sightline.index(tmp_path, model=tiny_bundle)
    with opening(tmp_path) as found:
        answer = ask(application(found), "GET", "/v1/items/1/thumbnail?side=160")
    assert Image.open(io.BytesIO(answer.content)).size == thumbnail


def test_thumbnails_can_be_read_by_their_owner_alone(
    opened: ServedCollection, collection: Collection, tmp_path: Path
) -> None:
    from server.samples import limits
    from sightline.server.image_files import Thumbnails

    folder = tmp_path / "thumbnails"
    folder.mkdir(mode=0o755)
    item = next(iter(collection.items(collection.catalog.ids()).values()))
    before = os.umask(0)
    try:
        Thumbnails(limits(), opened.service.decoders, folder).get(collection, item, 160)
    finally:
        os.umask(before)
    made = [folder, *folder.rglob("*")]
    assert len(made) == 3
    assert not [path for path in made if path.stat().st_mode & 0o077]


def test_thumbnails_that_take_too_much_room_are_deleted_oldest_first(
    opened: ServedCollection, collection: Collection, tmp_path: Path
) -> None:
    from server.samples import limits
    from sightline.server.image_files import Thumbnails

    items = list(collection.items(collection.catalog.ids()).values())
    thumbnails = Thumbnails(limits(thumbnail_bytes=1500), opened.service.decoders, tmp_path)
    for item in items:
        thumbnails.get(collection, item, 160)
    thumbnails.delete_oldest()
    left = sum(path.stat().st_size for path in tmp_path.rglob("*.jpg"))
    assert 0 < left <= 1500
    assert thumbnails._place(collection.catalog.hash_of(items[-1].id) or b"", 160).exists()


def test_texts_and_pictures_are_embedded_as_the_model_does(client: httpx.Client, bundle: Bundle) -> None:
    texts = ["a dog", "two large birds above the blue water"]
    answer = client.post("/v1/embed", json={"texts": texts, "images": [base64.b64encode(picture(1)).decode()]}).json()
    assert (answer["model"], answer["dim"]) == ("tiny", 16)
    assert np.allclose(answer["texts"], [bundle.encode_texts([text]).embedding[0] for text in texts], atol=1e-5)
    pixels = to_pixels(ImageBytes("1", picture(1)), bundle.preprocess)[None]
    assert np.allclose(answer["images"], bundle.encode_images(pixels).embedding, atol=1e-5)


def test_pairs_are_matched_whether_the_picture_is_sent_or_stored(
    client: httpx.Client, bundle: Bundle, ids: dict[str, int]
) -> None:
    sent = {"text": "a red ball", "image": base64.b64encode(picture(1)).decode()}
    stored = {"text": "a red ball", "id": ids["beach/1.png"]}
    by_upload, by_id = client.post("/v1/match", json={"pairs": [sent, stored]}).json()["scores"]
    text = bundle.encode_texts(["a red ball"])
    image = bundle.encode_images(to_pixels(ImageBytes("1", picture(1)), bundle.preprocess)[None])
    assert text.states is not None
    assert image.states is not None
    expected = bundle.match(text.states, text.mask, image.states, image.mask)[0]
    assert by_upload["logit"] == pytest.approx(expected, abs=1e-4)
    assert by_id["logit"] == pytest.approx(expected, abs=0.05)  # states are stored in 127 steps
    assert by_upload["cosine"] == pytest.approx((text.embedding @ image.embedding.T).item(), abs=1e-4)


def test_full_width_letters_and_ligatures_are_embedded_and_matched_as_plain_letters(
    client: httpx.Client, ids: dict[str, int]
) -> None:
    texts = ["a dog", "a ｄｏｇ", "a fish", "a ﬁsh"]
    dog, other_dog, fish, other_fish = client.post("/v1/embed", json={"texts": texts}).json()["texts"]
    assert np.allclose([dog, fish], [other_dog, other_fish], atol=1e-5)
    pairs = [{"text": text, "id": ids["beach/1.png"]} for text in texts]
    dog, other_dog, fish, other_fish = client.post("/v1/match", json={"pairs": pairs}).json()["scores"]
    assert (other_dog, other_fish) == (pytest.approx(dog, abs=1e-5), pytest.approx(fish, abs=1e-5))


@pytest.mark.parametrize("relevance", [PairRelevance({"cosine": 2.0, "bias": 0.5}), {"match": Calibration(1, 0)}])
def test_a_text_that_asks_for_nothing_matches_without_relevance(
    relevance: Any, tmp_path: Path, tiny_bundle: Path
) -> None:
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    write_spec(bundle, dataclasses.replace(Bundle.open(bundle).spec, relevance=relevance))
    sightline.index(fill(tmp_path / "photos", 1), model=bundle)
    texts = ["a dog", "the", "in ", "!!!", "ｔｈｅ", "3"]
    with opening(tmp_path / "photos") as opened:
        app = application(opened)
        answers = [
            ask(app, "POST", "/v1/match", json={"pairs": [{"text": text, "id": 1} for text in texts], **lang}).json()
            for lang in ({}, {"lang": "en"})
        ]
    for answer in answers:
        assert [text for text, one in zip(texts, answer["scores"], strict=True) if "relevance" in one] == ["a dog", "3"]
        assert all({"cosine", "logit"} <= one.keys() for one in answer["scores"])


def test_an_explanation_is_late_interaction_word_by_word(
    client: httpx.Client, collection: Collection, bundle: Bundle, ids: dict[str, int]
) -> None:
    id = ids["town/2.png"]
    answer = client.get("/v1/explain", params={"q": "a dog, running", "id": id}).json()
    assert [word["word"] for word in answer["words"]] == ["a", "dog", "running"]
    assert "a dog, running"[answer["words"][2]["start"] : answer["words"][2]["end"]] == "running"
    fragments = bundle.encode_texts(["a dog, running"]).fragments
    stored = collection.store.fetch(np.array([id]), "fragments").values[0]
    assert fragments is not None
    expected = fragments[0] @ stored.T  # rows: [CLS] a dog , running [SEP]
    for row, word in zip((1, 2, 4), answer["words"], strict=True):
        assert np.allclose(word["grid"], expected[row].reshape(answer["rows"], answer["columns"]), atol=1e-3)
        assert word["score"] == pytest.approx(expected[row].max(), abs=1e-3)
    assert client.get("/v1/explain", params={"q": "a ｄｏｇ, running", "id": id}).json() == answer


def test_the_collection_is_described(client: httpx.Client) -> None:
    found = client.get("/v1/collection").json()
    assert (found["kind"], found["items"], found["model"], found["languages"]) == ("images", 9, "tiny", ["en"])


def test_images_of_the_fast_graph_are_told_apart(quick_bundle: Path, tmp_path: Path) -> None:
    folder = fill(tmp_path / "photos", 3)
    sightline.index(folder, model=quick_bundle)
    (folder / "new.png").write_bytes(picture(50))
    sightline.index(folder, model=quick_bundle, quick=True)
    with opening(folder) as opened, served(application(opened)) as address:
        assert httpx.get(f"{address}/v1/collection").json()["to_refine"] == 1
        found = httpx.get(f"{address}/v1/search", params={"q": "a dog", "rerank": 0, "duplicates": "show"}).json()
        kinds = {hit["path"]: hit.get("encoded_by") for hit in found["hits"]}
        assert {path for path, kind in kinds.items() if kind} == {"new.png"}
        id = next(hit["id"] for hit in found["hits"] if hit["path"] == "new.png")
        explained = httpx.get(f"{address}/v1/explain", params={"q": "a dog", "id": id})
        assert explained.status_code == 200, explained.text


def test_health_and_metrics_are_told(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    client.get("/v1/items/4711")
    lines = client.get("/metrics").text.splitlines()
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    assert values['sightline_requests_total{route="/v1/items/{id}",status="404"}'] >= 1
    assert values["sightline_items"] == 9
    assert values["sightline_requests_in_flight"] == 1
    health = 'sightline_request_seconds_{}{{route="/healthz"{}}}'
    assert values[health.format("bucket", ',le="+Inf"')] == values[health.format("count", "")] >= 1


def test_the_page_and_the_description_need_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    described = client.get("/docs").text
    assert "/v1/search" in described
    assert "<script" not in described
    assert "http" not in described.replace("http-equiv", "")


def test_the_description_has_the_maxima(client: httpx.Client) -> None:
    described = re.sub("<[^>]*>", " ", client.get("/docs").text)
    for told in (
        "at most 256 kB, or 20 MB if it may contain pictures",
        "k   integer (at most 200)",
        "q   string (at most 1,000 characters)",
        "not   list of string (at most 1,000 characters) (at most 8)",
        "late   integer (at most 1,000) or all",
        "ids   list of integer (at most 10,000)",
        "ids   string  required  At most 10,000 ids, separated by commas.",
    ):
        assert told in described


def test_a_collection_of_texts_is_served_too(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "notes.txt").write_text("a dog on the beach\ntwo cats\na red ball")
    report = sightline.index(tmp_path / "notes.txt", model=tiny_bundle)
    with opening(report.at) as opened:
        app = application(opened)
        hit = ask(app, "GET", "/v1/search?q=two cats&k=1").json()["hits"][0]
        assert (hit["text"], hit["line"]) == ("two cats", 2)
        assert "image" not in hit
        assert ask(app, "GET", f"/v1/items/{hit['id']}").json()["text"] == "two cats"
        for part in ("image", "thumbnail"):
            assert ask(app, "GET", f"/v1/items/{hit['id']}/{part}").status_code == 404
        assert ask(app, "GET", f"/v1/explain?q=cats&id={hit['id']}").status_code == 422
        assert ask(app, "POST", "/v1/match", json={"pairs": [{"text": "a", "id": hit["id"]}]}).status_code == 422
        assert len(ask(app, "GET", f"/v1/items/{hit['id']}/similar").json()["hits"]) == 2
        upload = {"image": ("x.png", picture(1), "image/png")}
        assert ask(app, "POST", "/v1/search", files=upload).json()["hits"][0]["stage"] == "match"


def test_some_items_are_spread_over_the_collection_or_over_what_passes_a_filter(
    client: httpx.Client, ids: dict[str, int]
) -> None:
    everything = client.get("/v1/items", params={"k": 50}).json()
    assert everything["total"] == len(set(ids.values()))
    assert {item["id"] for item in everything["items"]} == set(ids.values())
    assert everything["items"][0] == client.get(f"/v1/items/{everything['items'][0]['id']}").json()
    three = client.get("/v1/items", params={"k": 3}).json()["items"]
    in_order = sorted(set(ids.values()))
    assert [item["id"] for item in three] == [in_order[0], in_order[len(in_order) // 2], in_order[-1]]
    beach = client.get("/v1/items", params={"where": "folder = 'beach'", "k": 2}).json()
    assert beach["total"] == 4
    assert [item["path"] for item in beach["items"]] == ["beach/1.png", "beach/7.png"]
    assert client.get("/v1/items", params={"where": "folder = 'none'"}).json() == {"total": 0, "items": []}
    assert client.get("/v1/items", params={"where": "folder ="}).status_code == 422


def test_filters_can_choose_from_every_folder_and_the_known_dates(
    client: httpx.Client, tmp_path: Path, tiny_bundle: Path
) -> None:
    assert client.get("/v1/filters").json() == {
        "folders": [{"path": "beach", "items": 4}, {"path": "town", "items": 5}]
    }
    for name, taken in (("a/b/one.jpg", "2021:05:06 07:08:09"), ("a/two.jpg", "2023:01:02 03:04:05"), ("top.jpg", "")):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        if taken:
            exif.get_ifd(0x8769)[0x9003] = taken
        Image.open(io.BytesIO(picture(len(name)))).save(place, exif=exif)
    sightline.index(tmp_path, model=tiny_bundle)
    current = CurrentCollection(tmp_path / ".sightline", Bundle.open(tiny_bundle))
    assert browse.filter_choices(Library([current])) == {
        "folders": [{"path": "a", "items": 2}, {"path": "a/b", "items": 1}],
        "taken": {"first": "2021-05-06T07:08:09", "last": "2023-01-02T03:04:05"},
    }
    current.close()
