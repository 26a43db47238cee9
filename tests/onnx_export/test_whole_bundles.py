"""An export leaves a whole bundle or nothing, and what was there before stays until the new one is whole."""

import shutil
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tiny
from sightline.bundle import Bundle
from sightline.bundle.relevance_formula import PairRelevance
from sightline.cli import app
from sightline.errors import BundleError, EvaluationError
from sightline.models import checkpoint
from training import shapes

Files = dict[str, bytes | None]


pytestmark = pytest.mark.usefixtures("traced")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where nothing but the bundle is to be written."""
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    shapes.write(tmp_path / "many", shapes.cards(seed=5))
    shapes.write(tmp_path / "one", islice(shapes.cards(seed=5), 1))  # of which nothing can be learned
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture(params=["nothing", "an empty folder", "a bundle"])
def before(request: pytest.FixtureRequest, place: Path, tiny_bundle: Path) -> Files:
    """What is at --out, and all around it."""
    if request.param == "a bundle":
        shutil.copytree(tiny_bundle, place / "mine")
    elif request.param == "an empty folder":
        (place / "mine").mkdir()
    return files(place)


def files(folder: Path) -> Files:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def export(place: Path, data: str) -> Result:
    calibrated = ["--calibrate", str(place.parent / data)]
    return CliRunner().invoke(
        app, ["export", str(place.parent / "checkpoint"), "--out", str(place / "mine"), *calibrated]
    )


def test_data_that_cannot_calibrate_leave_all_as_it_was(before: Files, place: Path) -> None:
    done = export(place, "one")
    assert isinstance(done.exception, EvaluationError), done.output
    assert files(place) == before


@pytest.mark.parametrize("where", ["_graphs", "finish"])
def test_an_interrupted_export_leaves_all_as_it_was(
    where: str, before: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"sightline.onnx_export.exporter.{where}", interrupt)
    assert export(place, "many").exit_code != 0
    assert files(place) == before


def test_a_bundle_that_cannot_be_put_in_its_place_leaves_all_as_it_was(
    before: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def refuse(path: Path, to: Path) -> Path:
        if path.name == "mine.building":
            raise PermissionError(13, "Permission denied", str(to))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refuse)
    assert isinstance(export(place, "many").exception, PermissionError)
    assert files(place) == before


@pytest.mark.usefixtures("before")
def test_a_calibrated_bundle_is_all_that_a_finished_export_leaves(place: Path) -> None:
    done = export(place, "many")
    assert done.exit_code == 0, done.output
    assert [path.name for path in place.iterdir()] == ["mine"]
    spec = Bundle.open(place / "mine").spec
    assert spec.name == "mine"
    assert isinstance(spec.relevance, PairRelevance)


def test_held_out_pictures_that_cannot_be_read_are_named(place: Path) -> None:
    broken = sorted((place.parent / "many").glob("*.png"))[0]
    broken.write_bytes(b"no picture")
    done = export(place, "many")
    assert done.exit_code == 0, done.output
    assert "Left out, cannot be read:" in done.stderr
    assert broken.name in done.stderr


def test_what_was_moved_aside_by_an_export_that_was_killed_then_comes_back_if_the_next_one_fails(
    place: Path, tiny_bundle: Path
) -> None:
    shutil.copytree(tiny_bundle, place / "mine.replaced")
    (place / "mine.building").mkdir()
    assert export(place, "one").exit_code != 0
    assert [path.name for path in place.iterdir()] == ["mine"]
    assert Bundle.open(place / "mine").name == "tiny"


def test_a_folder_of_ones_own_with_the_name_that_is_used_meanwhile_is_not_deleted(place: Path) -> None:
    (place / "mine.replaced").mkdir()
    (place / "mine.replaced" / "thesis.txt").write_text("years of work")
    before = files(place)
    assert isinstance(export(place, "many").exception, BundleError)
    assert files(place) == before
