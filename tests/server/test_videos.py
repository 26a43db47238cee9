"""Videos over HTTP: hits with moments, frames of these, and the file in ranges of bytes."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import sightline
from server.samples import application, picture
from server.served import opening, served

pytest.importorskip("av", reason="the extra video is not installed")

from media.video_files import film, scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    """Two videos and a picture, indexed."""
    made = tmp_path_factory.mktemp("videos")
    film(made / "film.mp4", [scene(seed, (160, 120)) for seed in (1, 2, 3)])
    film(made / "other.webm", [scene(4)], 1)
    (made / "still.png").write_bytes(picture(5))
    sightline.index(made, model=tiny_bundle)
    return made


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with opening(folder) as opened, served(application(opened)) as address, httpx.Client(base_url=address) as found:
        found.timeout = httpx.Timeout(30)
        yield found


@pytest.fixture
def hit(client: httpx.Client) -> dict[str, Any]:
    found = client.get("/v1/search", params={"q": "a dog"}).json()["hits"]
    assert sorted(one["path"] for one in found) == ["film.mp4", "other.webm", "still.png"]
    return next(one for one in found if one["path"] == "film.mp4")


def test_a_hit_names_its_moments_and_where_to_play_it(client: httpx.Client, hit: dict[str, Any]) -> None:
    assert sorted(hit["moments"]) == pytest.approx([0, 3, 6], abs=0.25)
    assert hit["duration"] == pytest.approx(9, abs=0.3)
    assert hit["video"].startswith(f"/v1/items/{hit['id']}/video?v=")
    assert hit["thumbnail"].endswith(f"&at={hit['moments'][0]:g}")
    item = client.get(f"/v1/items/{hit['id']}").json()
    assert item["moments"] == sorted(hit["moments"])
    assert client.get(f"/v1/items/{hit['id']}/camera").json() == {}
    still = next(one for one in client.get("/v1/timeline/items").json()["items"] if one["path"] == "still.png")
    assert not {"video", "moments", "duration"} & set(still)


def test_the_image_of_a_moment_is_its_frame(client: httpx.Client, hit: dict[str, Any]) -> None:
    for seconds, seed in ((0, 1), (3, 2), (6.4, 3)):  # the nearest moment
        for form in ("image", "thumbnail"):
            answer = client.get(f"/v1/items/{hit['id']}/{form}", params={"at": seconds})
            assert answer.headers["content-type"] == "image/jpeg"
            with Image.open(io.BytesIO(answer.content)) as shown:
                assert shown.size == (160, 120)
                wanted = scene(seed, (160, 120)).getpixel((20, 20))
                assert all(abs(one - other) < 40 for one, other in zip(shown.getpixel((20, 20)), wanted, strict=True))
    tags = {client.get(f"/v1/items/{hit['id']}/thumbnail", params={"at": at}).headers["etag"] for at in (0, 0.4, 3)}
    assert len(tags) == 2
    assert client.get(f"/v1/items/{hit['id']}/image", params={"at": -1}).status_code == 422


def test_a_video_is_sent_whole_or_in_ranges(client: httpx.Client, hit: dict[str, Any], folder: Path) -> None:
    data = (folder / "film.mp4").read_bytes()
    whole = client.get(hit["video"])
    assert (whole.status_code, whole.content) == (200, data)
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["content-type"] == "video/mp4"
    for asked, part in (("bytes=0-99", data[:100]), ("bytes=100-", data[100:]), ("bytes=-50", data[-50:])):
        answer = client.get(hit["video"], headers={"Range": asked})
        assert (answer.status_code, answer.content) == (206, part)
        first = data.index(part) if len(part) != 50 else len(data) - 50
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(part) - 1}/{len(data)}"
    beyond = client.get(hit["video"], headers={"Range": f"bytes={len(data)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(data)}")
    for odd in ("bytes=5-2", "bytes=a-b", "bytes=0-1,4-5", "lines=0-1", "bytes=-"):
        assert client.get(hit["video"], headers={"Range": odd}).status_code == 200


def test_conditions_and_head(client: httpx.Client, hit: dict[str, Any], folder: Path) -> None:
    size = (folder / "film.mp4").stat().st_size
    head = client.head(hit["video"])
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(size))
    tag = head.headers["etag"]
    part = client.head(hit["video"], headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.headers["content-length"]) == (206, "10")
    assert client.get(hit["video"], headers={"If-None-Match": tag}).status_code == 304
    assert client.get(hit["video"], headers={"Range": "bytes=0-9", "If-Range": tag}).status_code == 206
    assert client.get(hit["video"], headers={"Range": "bytes=0-9", "If-Range": '"old"'}).status_code == 200


def test_pictures_have_no_video_and_other_versions_are_not_found(client: httpx.Client, hit: dict[str, Any]) -> None:
    items = {one["path"]: one for one in client.get("/v1/items", params={"k": 9}).json()["items"]}
    assert len(items) == 3
    assert client.get(f"/v1/items/{items['still.png']['id']}/video").status_code == 404
    assert client.get(f"/v1/items/{hit['id']}/video?v={'0' * 16}").status_code == 404


def test_videos_are_similar_downloaded_and_counted_once(
    client: httpx.Client, hit: dict[str, Any], folder: Path
) -> None:
    similar = client.get(f"/v1/items/{hit['id']}/similar").json()["hits"]
    assert sorted(one["path"] for one in similar) == ["other.webm", "still.png"]
    packed = client.post("/v1/download", json={"ids": [hit["id"]]}).content
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.read("film.mp4") == (folder / "film.mp4").read_bytes()
    assert client.get("/v1/collection").json()["items"] == 3
    assert client.get("/v1/timeline").json()["total"] == 3
    assert client.get("/v1/items", params={"k": 2}).json()["total"] == 3


def test_a_video_that_changed_is_not_sent(client: httpx.Client, folder: Path) -> None:
    items = {one["path"]: one for one in client.get("/v1/items", params={"k": 9}).json()["items"]}
    other = folder / "other.webm"
    before = other.read_bytes()
    other.write_bytes(before[:-1] + b"!")
    try:
        answer = client.get(items["other.webm"]["video"])
        assert (answer.status_code, "not available" in answer.json()["detail"]) == (404, True)
    finally:
        other.write_bytes(before)
