"""docs/serve.md does what it says: its commands are taken from the page and run."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.samples import LIMITS, application, limits, picture
from server.served import opening, served
from sightline import cli

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
TOKEN = "something long that nobody guesses"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_question_of_the_page_is_answered(photos: Path, tmp_path: Path) -> None:
    own = shutil.copytree(photos, tmp_path / "photos")  # because some of the questions change albums
    (tmp_path / "photo.jpg").write_bytes(picture(1, format="JPEG"))
    questions = [line for line in LINES if line.startswith("curl ")]
    assert len(questions) == 19
    with opening(own) as opened:
        for options in ({}, {"host": "0.0.0.0", "token": TOKEN}):
            with served(application(opened, LIMITS, **options)) as address:  # type: ignore[arg-type]
                for line in questions:
                    if ("Bearer" in line) == bool(options):
                        assert_answered(line.replace("http://127.0.0.1:8000", address), tmp_path)
    assert (tmp_path / "small.jpg").read_bytes().startswith(b"\xff\xd8")


def assert_answered(line: str, folder: Path) -> None:
    command = [*shlex.split(line, comments=True), "--silent", "--show-error", "--fail-with-body"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=30)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    if "-o" not in command:
        assert json.loads(done.stdout)


def test_every_way_to_start_it_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("sightline.server.run.serve", lambda at, **options: asked.append({"at": at, **options}))
    for line in LINES:
        if line.startswith("sightline "):
            assert CliRunner().invoke(cli.app, shlex.split(line)[1:]).exit_code == 0
    assert [(one["at"], one["host"], one["port"], one["token"], one["watch"]) for one in asked] == [
        (None, "127.0.0.1", 8000, None, False),
        (["photos", "scans"], "127.0.0.1", 8000, None, False),
        (["photos"], "127.0.0.1", 8080, None, True),
        (None, "0.0.0.0", 8000, TOKEN, False),
    ]


def test_the_page_tells_the_limits_as_they_are() -> None:
    usual = type(limits())()
    for told in (
        f"{usual.upload_bytes // 2**20} MB",
        f"{usual.all_bodies_bytes // 2**20} MB for all requests in progress",
        f"{usual.pixels // 10**6} million pixels",
        f"{usual.items} items for a batch",
        f"begins within {usual.seconds:g} seconds",
        f"decoded within {usual.decode_seconds:g}",
        f"{usual.decode_bytes // 2**20} MB of memory",
        f"{usual.connections_per_address} connections per address, {usual.connections} in total",
        f"{usual.rate:g} requests a second, and bursts of {usual.burst}",
    ):
        assert told in " ".join(PAGE.split()), told
