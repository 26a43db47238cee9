"""What is done with results over HTTP: archives, paths and albums."""

import errno
import io
import os
import sys
import time
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import sightline
from server.samples import TOKEN, application, ask, fill, picture
from server.served import opening, served
from sightline.server import actions
from sightline.server.download import UniqueNames, safe_name
from sightline.server.run import ServedCollection


@pytest.fixture
def own(tmp_path: Path, tiny_bundle: Path) -> Iterator[tuple[Path, ServedCollection, httpx.Client]]:
    """A collection that a test may change, opened and served."""
    folder = fill(tmp_path / "photos")
    sightline.index(folder, model=tiny_bundle)
    with opening(folder) as found, served(application(found)) as address, httpx.Client(base_url=address) as client:
        yield folder, found, client


def ids_of(client: httpx.Client, where: str | None = None) -> dict[str, int]:
    answer = client.get("/v1/timeline/items", params={"where": where} if where else {}).json()
    return {item["path"]: item["id"] for item in answer["items"]}


def unpacked(answer: httpx.Response) -> dict[str, bytes]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="sightline.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_many_files_come_as_one_archive_byte_for_byte(client: httpx.Client, ids: dict[str, int], photos: Path) -> None:
    chosen = [ids["beach/1.png"], ids["town/2.png"]]
    wanted = {name: (photos / name).read_bytes() for name in ("beach/1.png", "town/2.png")}
    assert unpacked(client.post("/v1/download", json={"ids": chosen})) == wanted
    assert unpacked(client.post("/v1/download", data={"ids": ",".join(map(str, chosen))})) == wanted


def test_a_large_file_is_sent_in_parts(own: tuple[Path, ServedCollection, httpx.Client], tiny_bundle: Path) -> None:
    folder, _, _ = own
    data = picture(77) + bytes(3_000_000)
    (folder / "large.png").write_bytes(data)
    sightline.index(folder, model=tiny_bundle)
    with opening(folder) as found, served(application(found)) as address, httpx.Client(base_url=address) as client:
        assert unpacked(client.post("/v1/download", json={"ids": [ids_of(client)["large.png"]]})) == {"large.png": data}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_an_archive_has_only_names_that_every_system_can_unpack_side_by_side(tmp_path: Path, tiny_bundle: Path) -> None:
    folder = tmp_path / "photos"
    names = ["caf\u00e9.png", "cafe\u0301.png", "CAF\u00c9.png", "a\\..\\..\\evil.png", "new\nline.png", "-rf.png"]
    for number, name in enumerate([*map(os.fsencode, names), b"bad\xff.png", b"bad\xfe.png"]):
        path = folder / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(picture(number))
    sightline.index(folder, model=tiny_bundle)
    with opening(folder) as found, served(application(found)) as address, httpx.Client(base_url=address) as client:
        items = client.get("/v1/timeline/items").json()["items"]
        unpacked_files = unpacked(client.post("/v1/download", json={"ids": [item["id"] for item in items]}))
    assert sorted(unpacked_files.values()) == sorted(picture(number) for number in range(8))
    assert len({unicodedata.normalize("NFD", name).casefold() for name in unpacked_files}) == 8
    assert {"a_.._.._evil.png", "new_line.png", "-rf.png"} <= unpacked_files.keys()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_the_names_of_several_folders_are_cleaned_too(tmp_path: Path, tiny_bundle: Path) -> None:
    folders = [tmp_path / os.fsdecode(name) for name in (b"evil\\..\\x\n", b"bad\xff", b"C:")]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "aux.png").write_bytes(picture(number))
    at = sightline.index(folders, at=tmp_path / "at", model=tiny_bundle).at
    with opening(at) as found, served(application(found)) as address, httpx.Client(base_url=address) as client:
        items = client.get("/v1/timeline/items").json()["items"]
        names = unpacked(client.post("/v1/download", json={"ids": [item["id"] for item in items]})).keys()
    assert names == {"evil_.._x_/_aux.png", "bad\ufffd/_aux.png", "C_/_aux.png"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("beach/1.png", "beach/1.png"),
        ("Müller & Söhne/été (2).jpg", "Müller & Söhne/été (2).jpg"),
        ("a:b?.jpg", "a_b_.jpg"),
        ('<a>|"b"*.jpg', "_a___b__.jpg"),
        ("C:/x.jpg", "C_/x.jpg"),
        ("//server/../x.jpg", "server/x.jpg"),
        ("Trip. /x.jpg . ", "Trip/x.jpg"),
        (".../x.jpg", "_/x.jpg"),
        ("CON.jpg", "_CON.jpg"),
        ("nul", "_nul"),
        ("Lpt1 .tar.jpg", "_Lpt1 .tar.jpg"),
        ("com²/contents.jpg", "_com²/contents.jpg"),
        ("console/aux1.jpg", "console/aux1.jpg"),
    ],
)
def test_names_in_an_archive_suit_every_system(path: str, name: str) -> None:
    assert safe_name(path.split("/")) == name


def test_equal_names_are_numbered_within_their_folder() -> None:
    unique = UniqueNames()
    names = ["a/x.jpg", "a/x (2).jpg", "a/X.jpg", "a/x.jpg", "b/x.jpg", "a/x (2).jpg"]
    numbered = ["a/x.jpg", "a/x (2).jpg", "a/X (3).jpg", "a/x (4).jpg", "b/x.jpg", "a/x (2) (2).jpg"]
    assert [unique.of(name) for name in names] == numbered


def test_thousands_of_equal_names_are_numbered_at_once() -> None:
    unique = UniqueNames()
    began = time.monotonic()
    assert len({unique.of("x.jpg") for _ in range(10_000)}) == 10_000
    assert time.monotonic() - began < 3  # trying all numbers again for each name takes minutes


def test_what_is_gone_is_named_in_the_archive(own: tuple[Path, ServedCollection, httpx.Client]) -> None:
    folder, _, client = own
    ids = ids_of(client)
    (folder / "beach" / "1.png").unlink()
    (folder / "beach" / "3.png").write_bytes(picture(99))
    chosen = [ids[f"beach/{number}.png"] for number in (1, 3, 5)]
    found = unpacked(client.post("/v1/download", json={"ids": chosen}))
    assert set(found) == {"beach/5.png", "MISSING.txt"}
    assert b"beach/1.png\nbeach/3.png" in found["MISSING.txt"]


@pytest.mark.parametrize(
    "sent",
    [
        {"json": {"ids": []}},
        {"json": {"ids": ["1"]}},
        {"json": {}},
        {"data": {"ids": "1,x"}},
        {"data": {"ids": ""}},
        {"data": {"other": "1"}},
        {"data": {"ids": "9" * 5000}},
        {"data": {"ids": str(2**63)}},
    ],
)
def test_ids_that_are_none_are_refused(client: httpx.Client, sent: dict[str, object]) -> None:
    assert client.post("/v1/download", **sent).status_code == 422  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/v1/download", "/v1/paths", "/v1/albums/A", "/v1/match"])
def test_a_number_with_thousands_of_digits_in_json_is_refused(client: httpx.Client, path: str) -> None:
    body = '{"ids": [%s]}' % ("9" * 5000)
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


def test_items_that_do_not_exist_are_not_found(client: httpx.Client) -> None:
    for address in ("/v1/download", "/v1/paths", "/v1/albums/Trip"):
        assert client.post(address, json={"ids": [10**9]}).status_code == 404


def test_ids_that_no_item_has_are_named_and_the_others_are_used(client: httpx.Client, ids: dict[str, int]) -> None:
    first, unknown = ids["beach/1.png"], [10**9, (5 << 40) + 1]  # the last one would be in a sixth collection
    chosen = {"ids": [unknown[0], first, *unknown]}
    paths = client.post("/v1/paths", json=chosen).json()
    assert (len(paths["paths"]), paths["unknown_ids"]) == (1, unknown)
    found = unpacked(client.post("/v1/download", json=chosen))
    assert set(found) == {"beach/1.png", "MISSING.txt"}
    assert found["MISSING.txt"].decode() == f"No item has these ids: {unknown[0]}, {unknown[1]}\n"
    added = client.post("/v1/albums/Known", json=chosen).json()
    assert {"name": "Known", "items": 1} in added["albums"]
    assert added["unknown_ids"] == unknown
    removed = client.post("/v1/albums/Known/remove", json=chosen).json()
    assert "Known" not in [one["name"] for one in removed["albums"]]
    assert removed["unknown_ids"] == unknown
    assert "unknown_ids" not in client.get("/v1/albums").json()


def test_full_paths_and_folders_are_for_people_at_this_machine(
    opened: ServedCollection, client: httpx.Client, ids: dict[str, int], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Path] = []
    monkeypatch.setattr(actions, "open_folder", shown.append)
    id = ids["beach/1.png"]
    assert client.post("/v1/paths", json={"ids": [id]}).json() == {"paths": [str(photos / "beach" / "1.png")]}
    assert client.post(f"/v1/items/{id}/reveal").status_code == 204
    assert shown == [photos / "beach"]
    public = application(opened, host="0.0.0.0", token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(public, "POST", "/v1/paths", json={"ids": [id]}, headers=headers).json() == {"paths": ["beach/1.png"]}
    assert ask(public, "POST", f"/v1/items/{id}/reveal", headers=headers).status_code == 403
    assert len(shown) == 1


def test_albums_are_kept_listed_and_filtered_by(own: tuple[Path, ServedCollection, httpx.Client]) -> None:
    _, _, client = own
    ids = ids_of(client)
    beach = [id for path, id in ids.items() if path.startswith("beach")]
    assert client.get("/v1/albums").json() == {"albums": []}
    client.post("/v1/albums/By the sea", json={"ids": beach})
    answer = client.post("/v1/albums/Favourites", json={"ids": beach[:1]}).json()
    assert answer == {"albums": [{"name": "Favourites", "items": 1}, {"name": "By the sea", "items": 4}]}
    assert set(ids_of(client, "album = 'By the sea'").values()) == set(beach)
    assert set(ids_of(client, "album != 'By the sea'")) == {path for path in ids if path.startswith("town")}
    assert len(ids_of(client, "album is null")) == 4
    hits = client.get("/v1/search", params={"q": "a dog", "where": "album = 'Favourites'"}).json()["hits"]
    assert [hit["id"] for hit in hits] == beach[:1]
    assert client.get(f"/v1/items/{beach[0]}").json()["albums"] == ["By the sea", "Favourites"]
    left = client.post("/v1/albums/By the sea/remove", json={"ids": beach}).json()
    assert left == {"albums": [{"name": "Favourites", "items": 1}]}
    assert client.post("/v1/albums/%20", json={"ids": beach}).status_code == 422
    missing = client.delete("/v1/albums/Nowhere")
    assert (missing.status_code, missing.json()["detail"]) == (404, "there is no album 'Nowhere'")
    assert client.delete("/v1/albums/Favourites").json() == {"albums": []}
    assert client.get("/v1/albums").json() == {"albums": []}
    client.post("/v1/albums/Favourites", json={"ids": beach[:1]})
    answer = client.post("/v1/albums/Italy%2F2023", json={"ids": beach}).json()
    assert {"name": "Italy/2023", "items": 4} in answer["albums"]
    assert client.post("/v1/albums/Italy%2F2023/remove", json={"ids": beach}).json() == left


def test_albums_that_cannot_be_written_are_refused_with_the_reason(
    own: tuple[Path, ServedCollection, httpx.Client], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _, client = own
    first = client.get("/v1/items", params={"k": 1}).json()["items"][0]["id"]

    def full(path: Path, content: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sightline.collection.albums.write_atomic", full)
    answer = client.post("/v1/albums/Trip", json={"ids": [first]})
    assert (answer.status_code, answer.json()["detail"]) == (503, "albums cannot be changed now")
    assert str(folder) not in answer.text
    assert "No space left on device" in caplog.text


def test_albums_that_another_process_is_changing_are_refused_for_now(
    own: tuple[Path, ServedCollection, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, client = own
    first = client.get("/v1/items", params={"k": 1}).json()["items"][0]["id"]
    monkeypatch.setattr("sightline.collection.albums.FolderLock.acquire", lambda self: False)
    monkeypatch.setattr("sightline.collection.albums._PATIENCE", 0.0)
    answer = client.post("/v1/albums/Trip", json={"ids": [first]})
    assert (answer.status_code, answer.json()["way_out"]) == (503, "Try again in a moment.")


def test_albums_of_a_collection_on_a_server_are_refused(own: tuple[Path, ServedCollection, httpx.Client]) -> None:
    _, found, client = own
    first = next(iter(ids_of(client).values()))
    with found.current.use() as collection:
        collection.at = "postgresql://app@db.example.org/shop/photos"  # albums are kept in a folder
    answer = client.post("/v1/albums/Trip", json={"ids": [first]})
    assert (answer.status_code, answer.json()["detail"]) == (403, "a collection on a server has no albums")
    assert client.get("/v1/albums").json() == {"albums": []}


def test_an_album_may_have_a_name_that_ends_in_remove(client: httpx.Client) -> None:
    (first, second, *_) = ids_of(client).values()
    before = client.post("/v1/albums/To", json={"ids": [first]}).json()["albums"]
    for name in ("To%2Fremove", "remove", "%2Fremove"):
        after = client.post(f"/v1/albums/{name}", json={"ids": [first, second]}).json()["albums"]
        assert {"name": name.replace("%2F", "/"), "items": 2} in after
        assert [one for one in after if one in before] == before
        assert client.post(f"/v1/albums/{name}/remove", json={"ids": [first, second]}).json() == {"albums": before}
    left = client.post("/v1/albums/To/remove", json={"ids": [first]}).json()["albums"]
    assert "To" not in [one["name"] for one in left]
