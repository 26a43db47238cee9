"""The commands of docs/several-machines.md exist, have the options shown, and do what the page says."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser
from typer.testing import CliRunner

import sightline
from sightline.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "several-machines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", "").splitlines()]
INDEXING = [command for command in COMMANDS if command.startswith("sightline index")]
TRAINING = [command for command in COMMANDS if command.startswith("torchrun")]


@pytest.mark.parametrize("command", INDEXING)
def test_indexing_is_asked_for_as_the_page_says(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def index(places: list[Path], **options: Any) -> Any:
        asked.update(options, places=[place.name for place in places])
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sightline, "index", index, raising=False)
    words = shlex.split(command, comments=True)
    CliRunner().invoke(app, words[1:])
    assert asked["workers"] == words[words.index("--workers") + 1]
    assert asked["places"][0] == words[2]


@pytest.mark.parametrize("command", TRAINING)
def test_torchrun_starts_a_training_command_that_exists(command: str) -> None:
    asked = get_args_parser().parse_args(shlex.split(command)[1:])
    assert (asked.module, asked.training_script) == (True, "sightline")
    name, recipe, *options = asked.training_script_args
    assert (name, recipe) == ("train", "recipe.toml")
    told = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    assert all(option in told for option in options if option.startswith("--"))


def test_the_page_has_commands_of_both_kinds() -> None:
    assert len(INDEXING) == 4
    assert len(TRAINING) == 2
