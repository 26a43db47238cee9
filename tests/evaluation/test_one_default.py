"""Without fusion arguments, the command and the function use the same fusion: the model's default."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sightline
from sightline import cli
from sightline.datasets import read_all
from sightline.demo import PICTURES

PICTURES_USED = 5


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """Demo pictures, each with two captions that are not quite about it."""
    path = tmp_path / "captions.jsonl"
    names = sorted(PICTURES.glob("*.jpg"))[:PICTURES_USED]
    lines = [
        {"image": str(name), "captions": [name.stem.replace("-", " "), f"a photo near {names[row - 1].stem}"]}
        for row, name in enumerate(names)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_the_command_and_the_function_give_equal_numbers(captions: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = CliRunner().invoke(cli.app, ["eval", "default", str(captions), "--rerank", "4", "--json", str(out)])
    assert done.exit_code == 0, done.output
    command = json.loads(out.read_text())
    model = sightline.load()
    function = sightline.evaluate(model, read_all([str(captions)]), name=str(captions), rerank=4).to_json()
    assert (command["fusion"], command["weight"]) == (model.defaults.fusion, model.defaults.weight)
    for name in command.keys() - {"seconds"}:
        assert command[name] == function[name], name
