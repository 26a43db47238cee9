"""A page of the docs, followed block by block in a fresh folder, as a newcomer would."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from sightline.cli import app

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@contextmanager
def followed(page: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Do all that a page says in a folder, and stay there: save blocks that have a name, run Python and commands.

    Blocks of Python share their names, as in a notebook; these are yielded.
    """
    names: dict[str, Any] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small only wait for their other threads
    text = (DOCS / page).read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        for block in FENCE.finditer(text):
            named = re.search(r"Save\s(?:it|this)\sas\s`([\w.-]+)`:\n\n$", text[: block.start()])
            if named:
                Path(named[1]).write_text(block[2], encoding="utf-8")
            else:
                _run(page, block[1], block[2], names)
        yield names
    torch.set_num_threads(threads)


def _run(page: str, language: str, text: str, names: dict[str, Any]) -> None:
    if language == "python":
        exec(compile(text, page, "exec"), names)
    elif language == "sh":
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "sightline"
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, f"{line}\n{done.output}"
