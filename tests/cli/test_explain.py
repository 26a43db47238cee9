"""`sightline explain` draws where the words of a query are, in a file or an item, and `search --late` takes `all`."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import sightline
from collection.made_up import picture, put
from sightline import cli
from sightline.errors import CollectionError, MediaError, QueryError


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def photos(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("holiday") / "photos"
    for number in range(5):
        put(folder / f"{number}.png", picture(number))
    sightline.index(folder, model=tiny_bundle)
    return folder


def test_a_file_is_explained_as_a_picture(photos: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "heat.png"
    done = run("explain", "a red dog", photos / "1.png", "--model", tiny_bundle, "--out", out)
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout
    assert "dog" in done.stdout
    with Image.open(out) as drawn:
        assert drawn.format == "PNG"
        assert 4 * 300 < drawn.width < 5 * 300, "the picture, small as it is, and three words"


def test_an_item_is_explained_as_its_file_is(photos: Path, tiny_bundle: Path) -> None:
    """By what is stored of it, which is rounded."""
    with sightline.open(photos) as collection:
        (id,) = [hit.id for hit in collection.search("dog", where="name = '3.png'")]
    told = [
        json.loads(run("explain", "a red dog", *what, "--json").stdout)
        for what in ([photos / "3.png", "--model", tiny_bundle], [id, "--at", photos])
    ]
    assert told[0]["picture"] == told[1]["picture"] == str(photos / "3.png")
    assert set(told[0]) == {"query", "picture", "rows", "columns", "box", "words"}
    for one, other in zip(told[0]["words"], told[1]["words"], strict=True):
        assert one["word"] == other["word"]
        assert one["score"] == pytest.approx(other["score"], abs=0.02)


def test_what_cannot_be_explained_or_drawn_is_refused(photos: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    for arguments, error in (
        (("dog", photos / "1.png", "--out", tmp_path / "heat.txt"), QueryError),
        (("?!", photos / "1.png", "--model", tiny_bundle, "--json"), QueryError),
        (("d\udcffog", photos / "1.png", "--model", tiny_bundle, "--json"), QueryError),
        (("dog", photos / "9.png", "--model", tiny_bundle, "--json"), MediaError),
        (("dog", "999", "--at", photos, "--json"), CollectionError),
    ):
        assert isinstance(run("explain", *arguments).exception, error), arguments
    done = run("explain", "dog", photos / "1.png", "--out", tmp_path / "none" / "heat.png")
    assert "folder does not exist" in str(done.exception)


def test_a_picture_is_never_drawn_over(photos: Path, tiny_bundle: Path) -> None:
    before = (photos / "1.png").read_bytes()
    with sightline.open(photos) as collection:
        (id,) = [hit.id for hit in collection.search("dog", where="name = '1.png'")]
    for what in ([photos / "1.png", "--model", tiny_bundle], [id, "--at", photos]):
        done = run("explain", "dog", *what, "--out", photos / "1.png")
        assert "would be overwritten" in str(done.exception)
        assert (photos / "1.png").read_bytes() == before


def test_json_can_be_written_anywhere_whatever_a_picture_is_called(tmp_path: Path, tiny_bundle: Path) -> None:
    odd = put(tmp_path / os.fsdecode(b"caf\xc3\xa9 \xff.png"), picture(1))
    done = run("explain", "dog", odd, "--model", tiny_bundle, "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout_bytes.isascii()
    assert json.loads(done.stdout)["picture"] == str(odd).replace("\udcff", "\ufffd")


def test_texts_have_no_parts(tmp_path: Path, tiny_bundle: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("two cats")
    report = sightline.index(notes, model=tiny_bundle)
    with pytest.raises(CollectionError, match="texts"):
        sightline.explain("cats", 1, at=report.at)


def test_a_collection_is_ranked_by_late_interaction_alone(photos: Path) -> None:
    done = run("search", "a red dog", "--at", photos, "--late", "all", "--rerank", "0", "--where", "id > 1", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [hit["stage"] for hit in found["hits"]] == ["late"] * 4
    assert found["took_ms"]["interact"] > 0
    some = json.loads(run("search", "a red dog", "--at", photos, "--late", "9", "--rerank", "0", "--json").stdout)
    by_id = {hit["id"]: hit["score"] for hit in some["hits"]}
    for hit in found["hits"]:
        assert hit["score"] == pytest.approx(by_id[hit["id"]], abs=1e-5)
    first = json.loads(
        run(
            "search", "a red dog", "--at", photos, "--late", "all", "--late-fragments", "1", "--rerank", "0", "--json"
        ).stdout
    )
    assert all(-1 <= hit["score"] <= 1 for hit in first["hits"]), "one word, one patch: one cosine"


@pytest.mark.parametrize("late", ["some", "-3", "1.5", ""])
def test_how_many_is_a_whole_number_or_all(photos: Path, late: str) -> None:
    done = run("search", "dog", "--at", photos, "--late", late)
    assert isinstance(done.exception, QueryError)
    assert str(done.exception) == f"--late must be a whole number or 'all', not {late!r}"
