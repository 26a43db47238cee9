"""The commit of the running code, as results and checkpoints record it."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import provenance as measurements
from benchmarks.markdown import sources
from sightline.commit import commit_of
from sightline.training import provenance as runs


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one commit, and a package installed in its .venv, which git ignores."""
    monkeypatch.delenv("SIGHTLINE_COMMIT", raising=False)
    folder = tmp_path / "project"
    for name in ("code/module.py", "code/other.py", "code/page.md", "docs/results.md", "benchmarks/results/a.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "installed.py").write_text("")
    (folder / ".gitignore").write_text(".venv\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "All")
    return folder


def test_a_file_that_git_tracks_has_the_commit_of_its_checkout(checkout: Path) -> None:
    assert commit_of(checkout / "code" / "module.py") == git(checkout, "rev-parse", "HEAD")


def test_a_package_installed_inside_another_project_has_no_commit(checkout: Path) -> None:
    assert commit_of(checkout / ".venv" / "installed.py") == "unknown"


def test_a_file_outside_of_any_checkout_has_no_commit(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    assert commit_of(tmp_path / "module.py") == "unknown"
    assert commit_of(tmp_path / "no such folder" / "module.py") == "unknown"


def test_a_checkout_without_a_commit_has_none(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    assert commit_of(tmp_path / "module.py") == "unknown"


def test_without_git_the_commit_is_unknown(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit_of(checkout / "code" / "module.py") == "unknown"


@pytest.mark.parametrize("is_staged", [False, True])
def test_changes_since_the_commit_are_recorded(is_staged: bool, checkout: Path) -> None:
    (checkout / "code" / "other.py").write_text("changed")
    if is_staged:
        git(checkout, "add", ".")
    assert commit_of(checkout / "code" / "module.py") == f"{git(checkout, 'rev-parse', 'HEAD')}-dirty"


@pytest.mark.parametrize("name", ["docs/results.md", "benchmarks/results/a.json", "code/page.md", "untracked.py"])
def test_results_pages_and_untracked_files_are_no_changes(name: str, checkout: Path) -> None:
    (checkout / name).write_text("changed")
    assert commit_of(checkout / "code" / "module.py") == git(checkout, "rev-parse", "HEAD")


def test_the_environment_variable_wins(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "code" / "other.py").write_text("changed")
    monkeypatch.setenv("SIGHTLINE_COMMIT", "given")
    assert commit_of(checkout / "code" / "module.py") == "given"
    assert commit_of(checkout / ".venv" / "installed.py") == "given"


def test_runs_and_measurements_record_the_same_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGHTLINE_COMMIT", raising=False)
    assert measurements.provenance(0, [])["commit"] == runs.machine()["commit"] == commit_of(Path(runs.__file__))


def test_the_line_below_a_table_says_that_there_were_changes() -> None:
    result = {"machine": {"cores": 2, "processor": "x86_64"}, "command": "python -m benchmarks.timing"}
    commits = [f"{'1' * 40}-dirty", "2" * 40, "unknown"]
    line = sources([{**result, "commit": commit} for commit in commits], "timing.json")
    assert "at commits 1111111-dirty, 2222222 with" in line
