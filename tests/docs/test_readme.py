"""The front page tells the truth: its commands are commands, its Python runs, its links lead somewhere."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

from sightline import cli
from sightline.demo import PICTURES
from sightline.registry import loader

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("sightline ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one_with_these_options(line: str) -> None:
    _, name, *arguments = shlex.split(line.split(" | ")[0], comments=True)
    command = get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    assert command.make_context(name, arguments).params


def test_the_two_commands_are_targets_of_make() -> None:
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in set(re.findall(r"\bmake ([a-z]+)\b", PAGE)) - {"pixels"}:
        assert re.search(rf"^{name}:", made, re.MULTILINE), name


def test_the_python_runs(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loader, "_bundled", lambda: tiny_bundle)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holiday").mkdir()
    shutil.copy(PICTURES / "castle-on-the-water.jpg", tmp_path / "holiday" / "boat.jpg")
    shutil.copy(PICTURES / "living-room.jpg", tmp_path / "holiday" / "room.jpg")
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, names)
    rank, _, file = capsys.readouterr().out.split()
    assert (rank, file) == ("1", str(tmp_path / "holiday" / "boat.jpg"))
    assert -1 <= float(str(names["cosine"])) <= 1


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(((?!http|#)[^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_every_page_of_the_docs_is_listed() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in PAGE, page.name
