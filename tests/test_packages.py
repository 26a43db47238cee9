"""Hints on what to install name the Python that Sightline runs in."""

import sys
from pathlib import Path

import pytest

from sightline.packages import install_command, install_extra, pip


def test_the_pip_of_another_python_is_not_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    own = tmp_path / "own bin"
    for folder in (other, own):
        folder.mkdir()
        (folder / "pip").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(own))
    assert install_extra("heic") == "pip install 'sightline-search[heic]'"
    monkeypatch.setenv("PATH", str(other))
    assert pip() == f"'{own}/python' -m pip"
    assert install_command("wandb") == f"'{own}/python' -m pip install wandb"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command("wandb") == f"'{own}/python' -m pip install wandb"
