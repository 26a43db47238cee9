"""The demo as a newcomer meets it: what it shows, what it finds, and whose pictures it shows it with."""

import dataclasses
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from sightline import cli, demo
from sightline.bundle.model import Calibration
from sightline.bundle.spec import read_spec, write_spec
from sightline.collection import Collection
from sightline.errors import ModelError, SightlineError
from sightline.registry import loader
from sightline.retrieval.query import Query
from sightline.retrieval.results import SearchResult

ATTRIBUTIONS = (demo.PICTURES / "ATTRIBUTIONS.md").read_text(encoding="utf-8")
LICENCES = {"public domain", "CC0 1.0", "CC BY 2.0", "CC BY 4.0"}


def answers(told: list[str]) -> list[list[str]]:
    """The lines after each command, up to the blank line that ends them."""
    found: list[list[str]] = []
    for line in told:
        if line.startswith("$ "):
            found.append([])
        elif not line:
            continue
        elif found and line.startswith("  "):
            found[-1].append(line.strip())
    return found


@pytest.fixture
def sure_of_itself(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A tiny bundle that says how relevant results are, and takes nothing for likely."""
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / "calibrated"))
    never = Calibration(scale=0.0, bias=-3.0)
    write_spec(folder, dataclasses.replace(read_spec(folder), relevance={"embed": never, "match": never}))
    return folder


def test_every_question_is_shown_as_a_command_with_its_answer_and_then_what_to_type_next(
    sure_of_itself: Path, tmp_path: Path
) -> None:
    told = list(demo.run(tmp_path / "collection", sure_of_itself))
    asked = [one for one in demo.QUESTIONS if one.lang == "en"]
    assert [line[2:] for line in told if line.startswith("$ ")] == [one.command() for one in asked]
    *found, nothing = answers(told)[: len(asked)]
    for question, lines in zip(asked, found, strict=False):
        assert len(lines) == 3, question
        for line in lines:
            sure, name = line.split()
            assert sure.endswith("." if question.image else "%")
            assert (demo.PICTURES / name).is_file()
    assert nothing[0] == "Nothing found. The best guess is 5% likely."
    assert "36 pictures in" in "\n".join(told)
    assert told[told.index("Now your own pictures:") :][2] == "  sightline index ."


def test_what_the_demo_does_is_what_its_commands_would_do(
    sure_of_itself: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[dict[str, Any]] = []

    def remembered(collection: Collection, text: str | None, **options: Any) -> SearchResult:
        done.append({"text": text, **options})
        return SearchResult(Query("anything"), ())

    monkeypatch.setattr(Collection, "search", remembered)
    list(demo.run(tmp_path / "collection", sure_of_itself))
    command = get_command(cli.app).commands["search"]  # type: ignore[attr-defined]
    for question, options in zip([one for one in demo.QUESTIONS if one.lang == "en"], done, strict=True):
        asked = command.make_context("search", shlex.split(question.command())[2:]).params
        image = options["image"] and options["image"].name
        assert " ".join(asked["words"] or ()) == (options["text"] or "")
        assert list(asked["image"] or ()) == ([image] if image else [])
        assert list(asked["without"] or ()) == options["not_"]
        assert asked["rerank"] == options["rerank"]
        assert asked["min_relevance"] == options["min_relevance"]


def test_the_demo_finds_what_it_says_with_the_model_that_ships(tmp_path: Path, default_bundle: Path) -> None:
    *found, nothing = answers(list(demo.run(tmp_path)))[: len(demo.QUESTIONS)]
    names = [[line.split()[-1].removesuffix(".jpg") for line in lines] for lines in found]
    first = ["kitten-with-yarn", "cat-face", "kitten-in-a-box", "dog", "officer", "cat-face"]
    assert [best for best, *_ in names] == first
    assert set(names[5]) == {"cat-face", "kitten-in-a-box", "kitten-with-yarn"}
    assert nothing[0].startswith("Nothing found.")


def test_every_picture_has_an_author_a_licence_and_a_source_and_nothing_else_has() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", ATTRIBUTIONS, re.MULTILINE)
    assert [name for name, *_ in rows] == sorted(path.name for path in demo.PICTURES.glob("*.jpg"))
    for _, title, author, licence, source in rows:
        assert title.strip()
        assert author.strip()
        assert source.strip()
        assert re.sub(r"\[(.+?)\]\(.+?\)", r"\1", licence) in LICENCES


def test_the_pictures_are_few_and_small_and_all_open() -> None:
    pictures = list(demo.PICTURES.glob("*.jpg"))
    assert 25 <= len(pictures) <= 40
    assert sum(path.stat().st_size for path in pictures) < 2_500_000
    for path in pictures:
        with Image.open(path) as picture:
            picture.load()
            assert max(picture.size) <= 512
            assert not picture.getexif(), "says more than the picture"


def test_without_a_model_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise ModelError("this installation has no bundled model")

    monkeypatch.setattr(loader, "_bundled", missing)
    done = CliRunner().invoke(cli.app, ["demo"])
    assert isinstance(done.exception, SightlineError)
    assert "no bundled model" in str(done.exception)
