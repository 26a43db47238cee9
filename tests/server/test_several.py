"""Several collections in one server, and one search over all of them."""

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import sightline
from server.samples import application, fill, picture
from server.served import opening, served


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> tuple[Path, Path]:
    """Two collections: eight pictures, and three others."""
    base = tmp_path_factory.mktemp("several")
    first, second = fill(base / "photos"), base / "scans"
    second.mkdir()
    for number in range(3):
        (second / f"{number}.png").write_bytes(picture(50 + number))
    for folder in (first, second):
        sightline.index(folder, model=tiny_bundle)
    return first, second


@pytest.fixture(scope="module")
def asking(folders: tuple[Path, Path]) -> Iterator[httpx.Client]:
    with (
        opening(list(folders)) as found,
        served(application(found)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client


def listed(client: httpx.Client, **parameters: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.get("/v1/timeline/items", params=parameters).json()["items"]
    return found


def test_the_collections_are_told_of(asking: httpx.Client) -> None:
    about = asking.get("/v1/collection").json()
    assert about["items"] == 11
    assert about["collections"] == [{"name": "photos", "items": 8}, {"name": "scans", "items": 3}]
    folders = asking.get("/v1/filters").json()["folders"]
    assert {(one["root"], one["path"], one["items"]) for one in folders} == {
        ("photos", "", 8),
        ("photos", "beach", 4),
        ("photos", "town", 4),
        ("scans", "", 3),
    }


@pytest.mark.parametrize("options", [{}, {"rerank": 0}, {"rerank": 5, "where": "width > 1"}])
def test_a_search_finds_items_of_all_of_them(asking: httpx.Client, options: dict[str, object]) -> None:
    answer = asking.get("/v1/search", params={"q": "a dog", "k": 20, "duplicates": "show", **options}).json()
    hits = answer["hits"]
    assert [hit["rank"] for hit in hits] == list(range(1, 12))
    assert len({hit["id"] for hit in hits}) == 11
    assert {hit["root"] for hit in hits} == {"photos", "scans"}
    stages = [hit["stage"] for hit in hits]
    assert stages == sorted(stages, key=("match", "embed").index)
    if "rerank" in options:
        assert stages.count("match") == options["rerank"]


def test_items_are_served_from_their_own_collection(asking: httpx.Client, folders: tuple[Path, Path]) -> None:
    for item in listed(asking):
        id, root = item["id"], item["root"]
        about = asking.get(f"/v1/items/{id}").json()
        assert (about["id"], about["root"], about["path"]) == (id, root, item["path"])
        assert (
            asking.get(str(item["image"])).content == (folders[0].parent / str(root) / str(item["path"])).read_bytes()
        )
        assert asking.get(str(item["thumbnail"])).status_code == 200
    for wrong in (2**40, 2**41 + 1, 2**40 + 99, 2**62):
        assert asking.get(f"/v1/items/{wrong}").status_code == 404


def test_the_timeline_goes_through_all_of_them(asking: httpx.Client) -> None:
    assert asking.get("/v1/timeline").json()["total"] == 11
    ids: list[object] = []
    after: dict[str, str] = {}
    while True:
        page = asking.get("/v1/timeline/items", params={"k": 4, **after}).json()
        ids += [item["id"] for item in page["items"]]
        if "next" not in page:
            break
        after = {"after": page["next"]}
    assert len(set(ids)) == len(ids) == 11
    assert len(listed(asking, where="root = 'scans'")) == 3
    some = asking.get("/v1/items", params={"k": 5}).json()
    assert some["total"] == 11
    assert {item["root"] for item in some["items"]} == {"photos", "scans"}


def test_a_filter_takes_the_ids_of_results(asking: httpx.Client) -> None:
    every = listed(asking)
    one, other = (next(item["id"] for item in every if item["root"] == root) for root in ("photos", "scans"))
    for where, ids in (
        (f"id = {other}", {other}),
        (f"id in ({one}, {other}) and width > 1", {one, other}),
        (f"not id = {other}", {item["id"] for item in every} - {other}),
        (f"id >= {2**40}", {item["id"] for item in every if item["root"] == "scans"}),
    ):
        assert {item["id"] for item in listed(asking, where=where)} == ids
        sample = asking.get("/v1/items", params={"k": 20, "where": where}).json()
        assert {item["id"] for item in sample["items"]} == ids
        for rerank in (0, 5):
            asked = {"q": "a dog", "k": 20, "duplicates": "show", "where": where, "rerank": rerank}
            assert {hit["id"] for hit in asking.get("/v1/search", params=asked).json()["hits"]} == ids
    wrong = asking.get("/v1/items", params={"where": f"id = {other} or idd = 1"}).json()["detail"]
    assert f"id = {other} or idd = 1" in wrong


def test_what_is_like_an_item_may_be_in_another(asking: httpx.Client) -> None:
    (id, *_) = [item["id"] for item in listed(asking) if item["root"] == "scans"]
    found = asking.get(f"/v1/items/{id}/similar", params={"k": 20}).json()["hits"]
    assert id not in [hit["id"] for hit in found]
    assert {hit["root"] for hit in found} == {"photos", "scans"}
    scores = [hit["score"] for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert asking.post("/v1/match", json={"pairs": [{"text": "a dog", "id": id}]}).status_code == 200
    assert asking.get("/v1/explain", params={"q": "a dog", "id": id}).json()["id"] == id


def test_albums_downloads_and_paths_span_them(asking: httpx.Client, folders: tuple[Path, Path]) -> None:
    chosen = {str(item["root"]): item for item in listed(asking)}
    ids = [item["id"] for item in chosen.values()]
    answer = asking.post("/v1/albums/Both", json={"ids": ids}).json()
    assert answer == {"albums": [{"name": "Both", "items": 2}]}
    assert {item["id"] for item in listed(asking, where="album = 'Both'")} == set(ids)
    for folder in folders:
        with sightline.open(folder) as collection:
            assert len(collection.albums.all()["Both"]) == 1
    paths = asking.post("/v1/paths", json={"ids": ids}).json()["paths"]
    assert paths == [str(folders[0].parent / root / str(item["path"])) for root, item in chosen.items()]
    with zipfile.ZipFile(io.BytesIO(asking.post("/v1/download", json={"ids": ids}).content)) as archive:
        assert set(archive.namelist()) == {f"{root}/{item['path']}" for root, item in chosen.items()}
    assert asking.post("/v1/albums/Both/remove", json={"ids": ids}).json() == {"albums": []}


def addresses(id: object) -> list[str]:
    return [f"/v1/items/{id}{of}" for of in ("", "/image", "/thumbnail", "/similar", "/camera", "/text?q=a")]


LISTINGS = ("/v1/items", "/v1/timeline", "/v1/timeline/items", "/v1/filters", "/v1/albums", "/v1/collection")
SEARCHES = ("/v1/search?q=a+dog", "/v1/search?q=a+dog&rerank=0", "/v1/search?q=a+dog&where=width>1", "/v1/examples")


@pytest.mark.parametrize("is_first", [True, False])
def test_when_a_collection_is_deleted_the_others_are_still_served(
    folders: tuple[Path, Path], tmp_path: Path, is_first: bool
) -> None:
    first, second = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders)
    gone, left = (first, second) if is_first else (second, first)
    with (
        opening([first, second]) as found,
        served(application(found)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        ids = {str(item["root"]): item["id"] for item in listed(client)}
        shutil.rmtree(gone)
        for path in ("/readyz", *LISTINGS, *SEARCHES, *addresses(ids[left.name])):
            assert client.get(path).status_code == 200, path
        assert {item["root"] for item in listed(client)} == {left.name}
        hits = client.get("/v1/search", params={"q": "a dog", "k": 20}).json()["hits"]
        assert {hit["root"] for hit in hits} == {left.name}
        assert client.get(f"/v1/items/{hits[0]['id']}").json()["path"] == hits[0]["path"]
        for path in addresses(ids[gone.name]):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["detail"]) == (503, "the collection is not available"), path
        album = client.post("/v1/albums/Both", json={"ids": list(ids.values())}).json()
        assert album == {"albums": [{"name": "Both", "items": 1}], "unknown_ids": [ids[gone.name]]}
        assert client.post("/v1/paths", json={"ids": [ids[gone.name]]}).status_code == 404


def test_a_collection_that_was_deleted_is_called_unavailable_until_it_is_back(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, aside = Path(shutil.copytree(folders[1], tmp_path / "scans")), tmp_path / "aside"
    with (
        opening(folder) as found,
        served(application(found)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        id = listed(client)[0]["id"]
        folder.rename(aside)
        for path in (*LISTINGS, *SEARCHES, *addresses(id)):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json"), path
            assert str(tmp_path) not in answer.text
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        aside.rename(folder)
        for path in ("/readyz", *LISTINGS, *SEARCHES, *addresses(id)):
            assert client.get(path).status_code == 200, path
