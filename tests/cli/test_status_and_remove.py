"""`sightline status` and `sightline remove`, and searches in several collections."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sightline
from sightline.cli import app
from sightline.collection.image_text.database import TextDatabase, TextRead
from sightline.demo import PICTURES
from sightline.errors import CollectionError, SightlineError


@pytest.fixture
def folder(tmp_path: Path, tiny_bundle: Path) -> Path:
    """Three pictures, one of them twice, and one that is broken; indexed."""
    folder = tmp_path / "photos"
    (folder / "pets").mkdir(parents=True)
    shutil.copy(PICTURES / "dog.jpg", folder / "pets")
    shutil.copy(PICTURES / "dog.jpg", folder / "copy.jpg")
    shutil.copy(PICTURES / "owl.jpg", folder / "pets")
    shutil.copy(PICTURES / "coffee.jpg", folder)
    (folder / "broken.jpg").write_bytes(b"no picture")
    sightline.index(folder, model=tiny_bundle)
    return folder


def run(*arguments: str | Path, input: str | None = None) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments], input=input)
    assert done.exit_code == 0, done.output
    return done.output


def test_status_tells_what_is_indexed_and_what_failed(folder: Path) -> None:
    with sightline.open(folder) as collection:
        collection.add_to_album("Zoo", [1, 2])
    told = run("status", "--at", folder)
    assert f"{folder / '.sightline'}: 3 images, 1 exact copy; model tiny; " in told
    assert f"  {folder}: 4 files, 1 broken\n" in told
    assert "Files: 4 .jpg\n" in told
    assert "Albums: Zoo (2)\n" in told
    assert f"Cannot be read:\n  {folder / 'broken.jpg'}: cannot be opened as an image" in told
    (found,) = json.loads(run("status", "--at", folder, "--json"))["collections"]
    assert (found["items"], found["files"], found["copies"], found["text"]) == (3, 4, 1, None)
    assert found["roots"] == [{"path": str(folder), "ready": 4, "broken": 1, "exists": True}]
    assert found["broken"][0]["path"] == str(folder / "broken.jpg")
    folder.rename(folder.with_name("moved"))
    assert run("status", "--at", folder.with_name("moved"))


def test_a_folder_is_removed_and_its_files_stay(folder: Path, tiny_bundle: Path) -> None:
    at = folder / ".sightline"
    with sightline.open(folder) as collection:
        hashes = list(collection.catalog.hashes())
    database = TextDatabase.open(at, write=True)
    assert database
    database.add(TextRead(hash) for hash in hashes)
    database.close()
    told = run("remove", folder / "pets", "--at", folder, "--model", tiny_bundle, input="y\n")
    assert "Your files stay. [y/N]" in told
    assert "Removed 2 files" in told
    assert (folder / "pets" / "owl.jpg").exists()
    with sightline.open(folder) as collection:
        assert {file.path for file in collection.files()} == {"copy.jpg", "coffee.jpg"}
        assert len(collection.search("a dog", duplicates="show")) == 2
        assert collection.image_text
        assert collection.image_text.counts().read == 2
    assert sightline.index(folder, model=tiny_bundle).new == 2
    with pytest.raises(AssertionError, match="Aborted"):
        run("remove", folder / "pets", "--at", folder, "--model", tiny_bundle, input="n\n")


def test_a_second_root_is_removed_altogether(folder: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    shutil.copy(PICTURES / "horses.jpg", tmp_path / "scans")
    sightline.index(tmp_path / "scans", at=folder, model=tiny_bundle)
    run("remove", tmp_path / "scans", "--at", folder, "--model", tiny_bundle, "--yes")
    with sightline.open(folder) as collection:
        assert list(collection.catalog.roots().values()) == [folder]


def test_wrong_names_are_told(folder: Path, tiny_bundle: Path) -> None:
    told = {
        "not in": ["nowhere", "--yes"],
        "nowhere: not in": [str(folder / "pets"), "nowhere", "--yes"],
        "no PATHs to remove": [],
        "PATHs cannot be combined with --everything": ["pets", "--everything"],
        "the name of a folder or file is empty": ["", "--yes"],
    }
    for says, arguments in told.items():
        done = CliRunner().invoke(app, ["remove", *arguments, "--at", str(folder), "--model", str(tiny_bundle)])
        assert isinstance(done.exception, SightlineError)
        assert says in str(done.exception)
    with sightline.open(folder) as collection:
        assert len(collection.files()) == 4, "nothing was removed"


def test_a_whole_collection_is_deleted_and_nothing_else(folder: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    run("remove", "--everything", "--at", folder, "--yes")
    assert not (folder / ".sightline").exists()
    assert (folder / "pets" / "dog.jpg").exists()


def test_deleting_a_collection_keeps_other_files_in_its_folders(
    folder: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    at = tmp_path / "at"
    sightline.index(folder, at=at, model=tiny_bundle)
    with sightline.open(at) as collection:
        collection.add_to_album("Zoo", [1])
    for name in ("dog.jpg", "vectors/ids.txt", "vectors/horse.7", "albums/dog.jpg"):
        shutil.copy(PICTURES / "dog.jpg", at / name)
    sightline.index(folder, at=at, model=tiny_bundle)
    run("remove", "--everything", "--at", at, "--yes")
    kept = {str(path.relative_to(at)) for path in at.rglob("*") if path.is_file()}
    assert kept == {"dog.jpg", "vectors/ids.txt", "vectors/horse.7", "albums/dog.jpg"}


def test_a_collection_does_not_mix_its_files_with_those_of_a_user(
    folder: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    (mine / "vectors").mkdir(parents=True)
    shutil.copy(PICTURES / "dog.jpg", mine / "vectors")
    (mine / "catalog.db").write_bytes(b"of another program")
    told = run("index", folder, "--at", mine, "--model", tiny_bundle)
    assert str(mine / ".sightline") in told
    assert {path.name for path in mine.iterdir()} == {"vectors", "catalog.db", ".sightline"}
    assert (mine / "catalog.db").read_bytes() == b"of another program"
    assert json.loads(run("status", "--at", mine, "--json"))["collections"][0]["files"] == 4
    assert sightline.index(folder, at=mine, model=tiny_bundle).unchanged == 4
    run("remove", "--everything", "--at", mine, "--yes")
    assert {path.name for path in mine.rglob("*")} == {"vectors", "catalog.db", "dog.jpg"}


def test_a_collection_whose_creation_was_interrupted_is_completed_in_place(
    folder: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    at = tmp_path / "at"
    sightline.index(folder, at=at, model=tiny_bundle)
    (at / "manifest.json").unlink()
    (at / "manifest-copy.json").unlink()
    (at / "manifest.json.12-34.new").touch()
    sightline.index(folder, at=at, model=tiny_bundle)
    assert (at / "manifest.json").exists()
    assert not (at / ".sightline").exists()


def test_several_collections_are_searched_and_listed(folder: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    shutil.copy(PICTURES / "horses.jpg", tmp_path / "scans")
    sightline.index(tmp_path / "scans", model=tiny_bundle)
    both = ["--at", folder, "--at", tmp_path / "scans", "--model", tiny_bundle]
    found = json.loads(run("search", "a dog", *both, "--json", "--duplicates", "show"))["hits"]
    assert {Path(hit["file"]).name for hit in found} >= {"horses.jpg", "coffee.jpg"}
    assert [hit["rank"] for hit in found] == [1, 2, 3, 4]
    listed = json.loads(run("search", "--where", "name like '%.jpg'", *both, "--json"))["items"]
    assert len(listed) == 4
    assert len(json.loads(run("status", *both[:4], "--json"))["collections"]) == 2


@pytest.mark.parametrize("arguments", [["index", ""], ["search", "a dog", "--at", ""], ["remove", "", "--yes"]])
def test_an_empty_name_is_not_the_current_folder(
    arguments: list[str], folder: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may pass the value of a variable that is not set."""
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, [*arguments, "--model", str(tiny_bundle)])
    assert "is empty" in str(done.exception)
    with sightline.open(folder) as collection:
        assert len(collection.files()) == 4


def test_python_refuses_an_empty_name(folder: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for call in (lambda: sightline.index("", model=tiny_bundle), lambda: sightline.open("")):
        with pytest.raises(CollectionError, match="is empty"):
            call()


def test_a_filter_lists_the_newest_of_all_collections_first(folder: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    shutil.copy(PICTURES / "horses.jpg", scans)
    for place, path in enumerate([folder / "coffee.jpg", scans / "horses.jpg", folder / "pets" / "owl.jpg"]):
        os.utime(path, (1_000_000_000 + place * 40_000_000,) * 2)
    for one in (folder, scans):
        sightline.index(one, model=tiny_bundle)

    def listed(*options: str) -> list[str]:
        both = ["--where", "modified < '2010'", "--at", folder, "--at", scans, "--json", *options]
        return [Path(item["file"]).name for item in json.loads(run("search", *both))["items"]]

    assert listed() == ["owl.jpg", "horses.jpg", "coffee.jpg"]
    assert listed("-k", "1", "--start", "1") == ["horses.jpg"]


def test_a_collection_that_is_named_twice_is_searched_once(folder: Path, tiny_bundle: Path) -> None:
    twice = ["--at", folder, "--at", folder / ".sightline", "--model", tiny_bundle, "--json"]
    hits = json.loads(run("search", "a dog", *twice))["hits"]
    assert len({hit["id"] for hit in hits}) == len(hits) == 3
    assert len(json.loads(run("search", "--where", "width > 0", *twice))["items"]) == 3


@pytest.mark.parametrize("query", [["a dog"], ["--where", "width > 0"]])
def test_skipping_all_results_is_not_an_empty_collection(folder: Path, tiny_bundle: Path, query: list[str]) -> None:
    told = run("search", *query, "--start", "1000", "--at", folder, "--model", tiny_bundle)
    assert "Nothing found after the first 1,000 results." in told


def test_a_deleted_current_folder_is_named(
    folder: Path, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert str(folder / "pets" / "owl.jpg") in run("search", "a dog", "--at", folder, "--model", tiny_bundle)
    for arguments in (["search", "a dog"], ["index"], ["remove", "pets", "--yes", "--at", str(folder)]):
        done = CliRunner().invoke(app, [*arguments, "--model", str(tiny_bundle)])
        assert "the current folder was deleted" in str(done.exception)
