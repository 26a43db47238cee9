"""Options that several commands have mean the same, say the same, and take what their help says."""

from pathlib import Path
from typing import Any

import pytest
from click import Context
from typer.main import get_command
from typer.testing import CliRunner

from sightline import cli
from sightline.errors import CollectionError


def helps(option: str) -> dict[str, tuple[str | None, str]]:
    """The metavar and the help of an option, by the command that has it."""
    found: dict[str, tuple[str | None, str]] = {}
    app: Any = get_command(cli.app)
    for name in app.list_commands(Context(app)):
        for parameter in app.commands[name].params:
            if option in parameter.opts:
                found[name] = (parameter.metavar, parameter.help)
    return found


def test_a_module_to_import_is_the_same_option_everywhere() -> None:
    found = helps("--import")
    assert set(found) == {"eval", "compare", "train", "export"}
    assert len(set(found.values())) == 1


def test_a_model_is_called_a_model_because_it_need_not_be_a_bundle() -> None:
    found = helps("--model")
    assert {metavar for metavar, _ in found.values()} == {"MODEL"}
    assert len({found[name] for name in ("search", "serve", "remove")}) == 1
    for name in ("index", "explain"):
        assert found[name][1].startswith("default, fast, a bundle or checkpoint folder, or hf:NAME. By default "), name


def test_a_collection_is_a_folder_or_a_store_where_a_command_only_reads_it() -> None:
    found = helps("--at")
    stores = {name for name, (metavar, _) in found.items() if metavar == "DIR|URL"}
    assert stores == {"search", "serve", "status", "explain", "doctor"}
    assert {found[name][0] for name in set(found) - stores} == {"DIR"}
    assert len({found[name] for name in ("search", "serve", "status")}) == len({found["explain"], found["doctor"]}) == 1


@pytest.mark.parametrize("command", [["status"], ["doctor"], ["explain", "a dog", "1"]])
def test_the_url_of_a_store_is_read_as_it_was_written(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def resolve(at: str | Path | None = None) -> Path:
        asked.append(at)
        raise CollectionError("no server")

    monkeypatch.setattr("sightline.collection.collection.resolve_location", resolve)
    CliRunner().invoke(cli.app, [*command, "--at", "milvus://vectors:19530/photos"])
    assert asked == ["milvus://vectors:19530/photos"]
