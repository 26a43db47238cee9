"""Which models `sightline models` lists, and what it says of them."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sightline import cli
from sightline.bundle.spec import read_spec, write_spec
from sightline.errors import ModelError
from sightline.registry import loader
from sightline.registry.installed import installed_models
from sightline.registry.published import PUBLISHED_MODELS

RESULT = {
    "model": "tiny",
    "data": "flickr8k-test",
    "stages": ["embed", "match@20"],
    "text_to_image": {"R@1": 41.24},
    "image_to_text": {"R@1": 52.6},
}


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, list(arguments))


@pytest.fixture(autouse=True)
def machine(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, with a bundled model elsewhere and an empty hub."""
    bundled = Path(shutil.copytree(tiny_bundle, tmp_path / "bundled"))
    monkeypatch.setattr(loader, "_bundled", lambda: bundled)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def test_bundles_are_found_in_every_known_place_and_called_as_commands_call_them(
    machine: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    hub = tmp_path / "hub" / "models--someone--their-model"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("abc")
    shutil.copytree(tiny_bundle, hub / "snapshots" / "abc")
    shutil.copytree(tiny_bundle, hub / "snapshots" / "old")
    for place in ("mine", "bundles/ours", "runs/first/bundle"):
        shutil.copytree(tiny_bundle, machine / place)
    bundles = {one.model: one for one in installed_models()}
    assert bundles["hf:someone/their-model"].folder == hub / "snapshots" / "abc"
    found = list(bundles)
    assert found == ["default", "hf:someone/their-model", "mine", "bundles/ours", "runs/first/bundle"]
    for model in found:
        if not model.startswith("hf:"):
            assert loader.load(model).name == "tiny"


def test_the_bundled_model_is_listed_once_though_it_lies_in_the_working_folder(
    machine: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_bundle, machine / "bundles" / "default")
    monkeypatch.setattr(loader, "_bundled", lambda: machine / "bundles" / "default")
    assert [one.model for one in installed_models()] == ["default"]


def test_the_table_tells_abilities_size_and_results(tmp_path: Path) -> None:
    folder = tmp_path / "bundled"
    assert "not measured" in run("models").output
    names = {"model": "tiny", "data": "names-val", "stages": ["embed"], "names": {"top1": 60.2, "top5": 88.0}}
    others = {**RESULT, "data": "coco-val", "text_to_image": {"R@1": 33.3}}
    results = ({**RESULT, "stages": ["embed"]}, RESULT, others, names)
    write_spec(folder, dataclasses.replace(read_spec(folder), results=results))
    told = run("models").output
    for words in (
        "default",
        "embed, fragments, match",
        "float32",
        "en",
        "41.2 / 52.6 (flickr8k-test, embed + match@20)",
    ):
        assert words in told


def test_names_can_be_copied_from_a_narrow_terminal_and_many_languages_are_below_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "bundled"
    spec = read_spec(folder)
    write_spec(
        folder, dataclasses.replace(spec, text=dataclasses.replace(spec.text, languages=("en", "de", "fr", "it")))
    )
    told = CliRunner(env={"COLUMNS": "80"}).invoke(cli.app, ["models"]).output
    assert all(one.model in told for one in PUBLISHED_MODELS)
    assert "Languages of default: en, de, fr, it\n" in told


def test_json_tells_everything(tmp_path: Path) -> None:
    folder = tmp_path / "bundled"
    write_spec(folder, dataclasses.replace(read_spec(folder), results=(RESULT,)))
    (told,) = json.loads(run("models", "--json").stdout)["models"]
    size = sum(path.stat().st_size for path in folder.iterdir() if path.name != "sightline.json") / 1e6
    assert told["megabytes"] == pytest.approx(size, abs=0.05)
    assert (told["model"], told["name"], told["folder"]) == ("default", "tiny", str(folder))
    assert told["abilities"] == ["embed", "fragments", "match"]
    assert told["results"] == [RESULT]


def test_the_languages_of_an_add_on_are_listed(machine: Path, german_bundle: Path) -> None:
    shutil.copytree(german_bundle, machine / "german")
    plain, german = json.loads(run("models", "--json").stdout)["models"]
    assert (plain["languages"], german["languages"]) == (["en"], ["en", "de"])
    assert german["megabytes"] > plain["megabytes"]


def test_known_models_are_listed_without_numbers_and_it_says_so() -> None:
    assert "has not measured these" in run("models").output
    known = json.loads(run("models", "--json").stdout)["known"]
    assert len(known) >= 5
    assert all(one["results"] == [] for one in known)


def test_a_bundle_that_cannot_be_read_is_told_and_the_others_are_listed(machine: Path) -> None:
    (machine / "odd").mkdir()
    (machine / "odd" / "sightline.json").write_text("{}")
    done = run("models")
    assert done.exit_code == 0
    assert "skipped: odd" in done.stderr
    assert "default" in done.stdout


def test_without_any_model_the_list_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise ModelError("this installation has no bundled model")

    monkeypatch.setattr(loader, "_bundled", missing)
    assert installed_models() == []
    assert "No models found" in run("models").output
