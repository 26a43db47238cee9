"""Pictures in shards and at the URLs of a list are indexed, found again and forgotten like those of a folder."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from collection.made_up import Instant, contents, digest, picture, put
from collection.shards import served, write_shard
from sightline.collection import Collection, index
from sightline.collection.catalog.integrity import CHECKSUM_FILE
from sightline.collection.indexing import shards_and_urls
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.errors import CollectionError
from sightline.media import remote
from sightline.server.decoders import DecoderPool
from sightline.server.image_files import original_image
from sightline.server.limits import Limits
from tar_files import write_tar


def expected(numbers: range, prefix: str = "") -> dict[str, bytes]:
    return {f"{prefix}{number:06}.png": digest(picture(number)) for number in numbers}


def test_every_picture_of_a_shard_is_an_item_whose_bytes_can_be_had_again(model: Instant, tmp_path: Path) -> None:
    report = index(write_shard(tmp_path / "a.tar", range(6)), model=model)
    assert (report.new, report.at) == (6, tmp_path / ".sightline-a")
    assert contents(report.at) == expected(range(6))
    with Collection.open(report.at, model) as collection:
        for file in collection.files():
            assert digest(source_of(file).read()) == expected(range(6))[file.path]
        sent = original_image(collection, collection.item(1), Limits(), DecoderPool(Limits()))
    assert sent.data == picture(0)


def test_a_shard_that_is_known_is_not_opened_again(
    model: Instant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = write_shard(tmp_path / "a.tar", range(4))
    at = index(shard, model=model).at
    with monkeypatch.context() as closed:
        closed.setattr(shards_and_urls, "images_in", lambda *_: pytest.fail("was opened"))
        again = index(shard, at=at, model=model)
    assert (again.unchanged, again.read) == (4, 0)


def test_a_run_that_was_stopped_inside_a_shard_goes_on_there(model: Instant, tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", range(4))
    at = index(shard, model=model).at
    with closing(sqlite3.connect(at / "catalog.db")) as connection, connection:
        connection.execute("DELETE FROM files WHERE path = '000002.png'")
    (at / CHECKSUM_FILE).unlink()
    report = index(shard, at=at, model=model)
    assert (report.new, report.unchanged, report.read) == (1, 3, 1)
    assert contents(at) == expected(range(4))


def test_a_shard_that_was_written_anew_is_read_anew(model: Instant, tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", range(4))
    at = index(shard, model=model).at
    write_shard(shard, range(2, 7), mtime_ns=1_700_000_000_000_000_000)
    report = index(at=at, model=model)
    assert (report.new, report.unchanged, report.deleted, report.encoded) == (3, 2, 2, 3)
    assert contents(at) == expected(range(2, 7))


def test_of_a_shard_that_is_damaged_or_gone_nothing_is_forgotten_unless_pruned(model: Instant, tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", range(4))
    at = index(shard, model=model).at
    put(shard, shard.read_bytes()[:3000], 1_700_000_000_000_000_000)
    report = index(shard, at=at, model=model)
    assert "damaged or cut off" in report.skipped[0].reason
    shard.unlink()
    assert index(at=at, model=model).skipped[0].path == str(shard)
    assert contents(at) == expected(range(4))
    assert index(at=at, model=model, prune=True).deleted == 4


def test_a_folder_around_a_shard_leaves_it_alone(model: Instant, photos: Path, tmp_path: Path) -> None:
    shard = write_shard(photos / "a.tar", range(20, 23))
    at = tmp_path / "at"
    index(shard, at=at, model=model)
    assert index(photos, at=at, model=model).new == 6
    again = index(at=at, model=model)
    assert (again.unchanged, again.deleted) == (9, 0)


def test_a_list_names_pictures_and_shards(model: Instant, tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "b.tar", range(3))
    files = {"/a/one.png": picture(7), "/b.tar": shard.read_bytes()}
    with served(files) as address:
        lines = [f"{address}/a/one.png", "", "# a shard", f"{address}/b.tar", f"{address}/a/one.png", "no url"]
        place = tmp_path / "photos.urls"
        place.write_text("\n".join(lines))
        report = index(place, model=model)
        assert (report.new, report.skipped[0].path) == (4, f"{place}:6")
        assert contents(report.at) == {f"{address}/a/one.png": digest(picture(7))} | expected(
            range(3), f"{address}/b.tar/"
        )
        with Collection.open(report.at) as collection:
            for file in collection.files():
                assert digest(source_of(file).read()) == contents(report.at)[file.path]
        again = index(at=report.at, model=model)
        assert (again.unchanged, again.read) == (4, 0)
        place.write_text(f"{address}/b.tar\n")
        assert index(at=report.at, model=model).deleted == 1


def test_what_a_url_does_not_give_is_broken_and_asked_for_again(
    model: Instant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PAUSE", 0.0)
    files: dict[str, bytes] = {}
    place = tmp_path / "photos.urls"
    with served(files) as address:
        place.write_text(f"{address}/one.png\n")
        report = index(place, model=model)
        assert "404" in report.broken[0].reason
        files["/one.png"] = picture(1)
        assert index(at=report.at, model=model).changed == 1
    assert contents(report.at) == {f"{address}/one.png": digest(picture(1))}


def test_a_storage_is_read_through_fsspec(model: Instant, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    data = write_shard(tmp_path / "b.tar", range(3)).read_bytes()
    fsspec.filesystem("memory").pipe("/bucket/b.tar", data)
    place = tmp_path / "photos.urls"
    place.write_text("memory://bucket/b.tar\nmemory://bucket/none.png\n")
    report = index(place, model=model)
    assert [problem.path for problem in report.broken] == ["memory://bucket/none.png"]
    assert contents(report.at) == expected(range(3), "memory://bucket/b.tar/")


def test_a_place_of_no_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"not a folder, shard \(\.tar\), list of URLs") as caught:
        index(put(tmp_path / "photos.zip", b"PK"))
    assert caught.value.way_out == "To index an image, pass the folder it is in."


def test_names_in_an_archive_that_lead_elsewhere_stay_below_it(model: Instant, tmp_path: Path) -> None:
    names = ("/etc/passwd.png", "../../up.png", "./plain.png")
    write_tar(tmp_path / "a.tar", [(name, picture(number)) for number, name in enumerate(names)])
    at = index(tmp_path / "a.tar", model=model).at
    with Collection.open(at, model) as collection:
        hits = collection.search("anything", rerank=0).hits
        assert {hit.path for hit in hits} == {"etc/passwd.png", "_/_/up.png", "plain.png"}
        assert all(hit.file.is_relative_to(tmp_path / "a.tar") for hit in hits)
        assert {source_of(file).read() for file in collection.files()} == {picture(number) for number in range(3)}
