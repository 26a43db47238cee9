"""Python explains itself: help works without torch, and every function says what it takes."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sightline
from sightline import errors
from sightline.collection import Collection
from sightline.packages import install_extra
from test_wings import BLOCKED

FUNCTIONS = ("load", "open", "index", "search", "explain", "explain_codes", "evaluate", "train", "export")


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKED + script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_works_without_torch_and_shows_every_signature() -> None:
    shown = run("import pydoc, sightline; print(pydoc.render_doc(sightline, renderer=pydoc.plaintext))")
    for name in FUNCTIONS:
        assert f"\n    {name}(" in shown, name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_plain_and_has_an_example(name: str) -> None:
    function = getattr(sightline, name)
    assert inspect.isfunction(function)
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    doc = inspect.getdoc(function) or ""
    assert ">>> " in doc
    assert "tiny_bundle" not in doc
    for parameter in inspect.signature(function).parameters:
        assert parameter in doc or name == "search", parameter


@pytest.mark.parametrize(
    ("call", "job"), [("train({}, 'out')", "training needs torch"), ("export('run', 'out')", "exporting needs torch")]
)
def test_what_needs_torch_says_so_when_it_is_called(call: str, job: str) -> None:
    script = (
        f"\nimport sightline\ntry:\n    sightline.{call}\nexcept sightline.SightlineError as error:\n    print(error)"
    )
    what, way_out = run(script).splitlines()
    assert what.startswith(job)
    assert way_out == install_extra("train")


def test_every_error_is_importable_from_the_top() -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    for kind in kinds:
        assert issubclass(kind, sightline.SightlineError)
        assert any(issubclass(kind, getattr(sightline, name)) for name in dir(sightline) if name.endswith("Error"))


def test_an_interruption_is_importable_from_the_top_and_has_the_report(tmp_path: Path, tiny_bundle: Path) -> None:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(sightline.IndexingInterrupted) as caught:
        sightline.index(tmp_path, model=tiny_bundle, progress=interrupt)
    assert isinstance(caught.value.report, sightline.Report)


def test_what_is_returned_has_a_type_to_name(tmp_path: Path, tiny_bundle: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("a dog\na cat\na red ball\n")
    report = sightline.index(notes, at=tmp_path / "c", model=tiny_bundle)
    with sightline.open(report.at) as collection:
        found = collection.search("a dog")
        items = collection.browse()
        assert sightline.Model in type(collection.model).__mro__
    assert isinstance(report, sightline.Report)
    assert isinstance(collection, sightline.Collection)
    assert isinstance(found, sightline.SearchResult)
    assert [type(hit) for hit in found[:2]] == [sightline.Hit] * 2
    assert {type(item) for item in items} == {sightline.Item}
    with pytest.raises(AttributeError, match="has no attribute 'Hits'"):
        _ = sightline.Hits


def test_a_collection_is_updated_with_the_model_that_indexed_it(tmp_path: Path, tiny_bundle: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("a dog\n")
    at = sightline.index(notes, at=tmp_path / "c", model=tiny_bundle).at
    notes.write_text("a dog\na cat\n")
    assert sightline.index(notes, at=at).new == 1
    assert sightline.index(at=at).unchanged == 2


def test_collections_and_results_say_what_they_are(tmp_path: Path, tiny_bundle: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("a dog\na cat\na red ball\na blue ball\n")
    at = sightline.index(notes, at=tmp_path / "c", model=tiny_bundle).at
    with Collection.open(at) as collection:
        found = collection.search("a dog")
        assert repr(collection) == f"Collection({str(at)!r}: 4 texts, model tiny)"
    assert repr(found).startswith("SearchResult('a dog', 4 hits: Hit(1, 'a dog', score=1.000, stage='embed'), Hit(2, ")
    assert repr(found).endswith(", …)")


def test_an_image_may_be_a_path_bytes_a_pil_image_or_an_array(tmp_path: Path, tiny_bundle: Path) -> None:
    path, drawn = tmp_path / "red.png", Image.new("RGB", (40, 30), "red")
    drawn.save(path)
    for image in (path, str(path), path.read_bytes(), drawn, np.asarray(drawn)):
        found = sightline.explain("a red square", image, model=tiny_bundle)
        assert [match.word for match in found.words] == ["a", "red", "square"]


def test_an_item_may_be_explained_by_a_numpy_integer(tmp_path: Path, tiny_bundle: Path) -> None:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    sightline.index(tmp_path, model=tiny_bundle)
    with sightline.open(tmp_path) as collection:
        id = collection.timeline().ids[0]
    scores = [str(sightline.explain("a red square", one, at=tmp_path)) for one in (id, int(id))]
    assert scores[0] == scores[1]
    with pytest.raises(sightline.OptionError, match="id must be a whole number, not True"):
        sightline.explain("a red square", True, at=tmp_path)


@pytest.mark.parametrize("wrong", [None, 5, b"a dog"])
def test_only_a_text_is_explained(wrong: object, tiny_bundle: Path) -> None:
    with pytest.raises(sightline.QueryError, match="text must be a string, not"):
        sightline.explain(wrong, Image.new("RGB", (9, 9)), model=tiny_bundle)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [3.5, np.zeros((2, 2)), np.zeros((2, 2, 7), np.uint8), np.zeros((0, 3), np.uint8)])
def test_what_is_no_image_is_refused(wrong: object, tiny_bundle: Path) -> None:
    with pytest.raises(sightline.MediaError, match=r"the image: is an? "):
        sightline.explain("a dog", wrong, model=tiny_bundle)  # type: ignore[arg-type]
