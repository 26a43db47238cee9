"""`sightline status` and `sightline remove`, and searches in several collections."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sightline
from sightline.cli import app
from sightline.collection.image_text.database import TextDatabase, TextRead
from sightline.demo import PICTURES
from sightline.errors import SightlineError


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
    assert f"{folder / '.sightline'}: 3 images, 1 exact copies; model tiny; " in told
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
        "no PATHs to remove": [],
        "PATHs cannot be combined with --everything": ["pets", "--everything"],
    }
    for says, arguments in told.items():
        done = CliRunner().invoke(app, ["remove", *arguments, "--at", str(folder), "--model", str(tiny_bundle)])
        assert isinstance(done.exception, SightlineError)
        assert says in str(done.exception)


def test_a_whole_collection_is_deleted_and_nothing_else(folder: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    run("remove", "--everything", "--at", folder, "--yes")
    assert not (folder / ".sightline").exists()
    assert (folder / "pets" / "dog.jpg").exists()
    inside = tmp_path / "inside"
    (inside / "albums").mkdir(parents=True)
    shutil.copy(PICTURES / "dog.jpg", inside / "albums")
    sightline.index(folder, at=inside, model=tiny_bundle)
    with sightline.open(inside) as collection:
        collection.add_to_album("Zoo", [1])
    run("remove", "--everything", "--at", inside, "--yes")
    assert [path.name for path in inside.rglob("*") if path.is_file()] == ["dog.jpg"]


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
