"""`make model` in small: two recipes, an export and two tests on a CPU, in one go and in pieces."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import sightline
import tiny
from bundles.card import card
from bundles.make import ModelBuild, OutOfTimeError
from sightline.bundle.spec import read_spec
from sightline.errors import RecipeError
from training import shapes


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model recipe with its two recipes beside it, and data."""
    folder = tmp_path_factory.mktemp("plan")
    data = shapes.write(folder / "pictures", shapes.cards(seed=0))
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    named = folder / "pictures" / "names.jsonl"
    named.write_text("".join(json.dumps({**line, "label": line["image"].split("-")[1]}) + "\n" for line in lines))
    first = shapes.recipe(data, data, hidden=16, layers=1, schedule={"steps": 4}, name="first")
    first["data"] = {"sources": [{"name": "cards", "train": [str(data)]}], "val": [str(data)], "batch_size": 8}
    second = {**first, "name": "second", "model": {"start": str(folder / "runs" / "first" / "best")}}
    second["losses"] = {"match": {"loss": "matching"}}
    for recipe in (first, second):
        shapes.write_toml(folder / f"{recipe['name']}.toml", recipe)
    tests = [
        {"name": "cards", "data": [str(data)], "rerank": 3},
        {"name": "colours", "data": [str(named)], "kind": "names"},
    ]
    return shapes.write_toml(
        folder / "tiny.model.toml",
        {
            "name": "tiny",
            "recipes": ["first.toml", "second.toml"],
            "calibrate": [str(data)],
            "precision": "float32",
            "runs": str(folder / "runs"),
            "tests": tests,
            "licences": {"model": "Apache-2.0"},
            "terms": {"cards": "made for this test"},
        },
    )


@pytest.fixture(scope="module")
def made(plan: Path, shapes_run: Path) -> Iterator[tuple[Path, list[str]]]:
    """The bundle, made with a clock that runs out after every stage or few steps, and what was reported."""
    told: list[str] = []
    out = plan.parent / "bundle"
    with pytest.MonkeyPatch.context() as patch:
        tiny.copy_graphs(shapes_run / "bundle", patch)
        for _ in range(20):
            asked = itertools.count()
            build = ModelBuild(plan, out, plan.parent / "results", lambda: next(asked) > 2, told.append)  # noqa: B023
            try:
                build.make()
            except OutOfTimeError:
                continue
            break
        else:
            raise AssertionError("it was never done")
        yield out, told


def test_it_is_made_in_pieces_each_of_which_goes_on_with_the_last(made: tuple[Path, list[str]], plan: Path) -> None:
    out, told = made
    assert sum("training in" in line for line in told) > 2, "a run should have been stopped in the middle"
    assert told[-1] == f"{out}: done"
    log = (plan.parent / "runs" / "first" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [1, 2, 3, 4]


def test_the_bundle_says_where_it_comes_from_as_the_runs_wrote_it(made: tuple[Path, list[str]], plan: Path) -> None:
    found = read_spec(made[0]).provenance
    first, second = found["recipes"]["first"], found["recipes"]["second"]
    (cards,) = first["sources"].values()
    assert len(cards.pop("sha256")) == 64
    assert cards == {"files": ["captions.jsonl"], "images": 24, "captions": 48}
    assert (first["steps"], first["seed"]) == (4, 0)
    assert len(first["parts"]) > 1
    assert first["parts"][0]["commit"]
    assert len(first["sha256"]) == 64
    assert first["validated"]["rSum"] > 0
    assert second["initial_weights"]["model"]["name"] == "best"
    assert found["terms_of_data"] == {"cards": "made for this test"}
    assert found["calibrated_on"]["images"] == 24
    assert str(plan.parent) not in json.dumps(found), "folders of whoever made it are nobody's business"


def test_the_bundle_searches_and_carries_its_results(made: tuple[Path, list[str]], plan: Path) -> None:
    bundle = sightline.load(made[0])
    assert bundle.abilities == {"embed", "match"}
    rows = read_spec(made[0]).results
    assert [row["stages"] for row in rows] == [["embed"], ["embed", "match@3"], ["embed"]]
    assert rows[2]["names"]["labels"] == 6
    saved = json.loads((plan.parent / "results" / "cards.json").read_text())
    assert saved["rows"] == json.loads(json.dumps(rows[:2]))
    assert set(saved["gain_of_reranking"]) == {"text_to_image", "image_to_text"}
    assert "| top 1 |" in card(made[0], "# Tiny\n\nFor tests.\n").replace("  ", " ")


def test_the_bundle_has_a_relevance_fitted_on_held_out_captions_and_the_words_of_its_training(
    made: tuple[Path, list[str]],
) -> None:
    bundle = sightline.load(made[0])
    assert bundle.relevance is not None
    assert bundle.relevance.data == ("captions",)
    assert bundle.relevance.weights["cosine"] != 0
    assert 0 < bundle.relevance.line < 1
    assert "red" in bundle.words


def test_to_make_it_again_is_to_do_nothing(made: tuple[Path, list[str]], plan: Path) -> None:
    told: list[str] = []
    ModelBuild(plan, made[0], plan.parent / "results", report=told.append).make()
    assert [line.split(": ")[-1] for line in told] == ["trained", "trained", "exported", "measured", "measured", "done"]


def test_languages_of_an_earlier_bundle_are_removed(made: tuple[Path, list[str]], plan: Path) -> None:
    out, _ = made
    (out / "languages").mkdir()
    facts = {"format": 1, "bundle": "another", "text": {"max_length": 9, "languages": ["de"]}}
    (out / "languages" / "languages.json").write_text(
        json.dumps({**facts, "files": {"text.onnx": "", "tokenizer.json": ""}})
    )
    told: list[str] = []
    ModelBuild(plan, out, plan.parent / "results", lambda: False, told.append).make()
    assert not (out / "languages").exists()
    assert any("belongs to the earlier bundle" in line for line in told)
    assert sightline.load(out).languages == ("en",)


def test_a_changed_recipe_is_not_taken_for_the_one_that_made_the_runs(made: tuple[Path, list[str]], plan: Path) -> None:
    path = plan.parent / "first.toml"
    before = path.read_text()
    path.write_text(before.replace('"lr" = 0.002', '"lr" = 0.001'))
    assert path.read_text() != before
    try:
        with pytest.raises(RecipeError, match=r"started with a different recipe. optimizer\.lr"):
            ModelBuild(plan, made[0], plan.parent / "results").make()
    finally:
        path.write_text(before)


def test_data_without_terms_is_refused(made: tuple[Path, list[str]], plan: Path) -> None:
    other = plan.with_name("other.model.toml")
    other.write_text(plan.read_text().replace('"cards" = "made for this test"', ""))
    with pytest.raises(RecipeError, match="terms does not mention cards"):
        ModelBuild(other, made[0], plan.parent / "results").make()
