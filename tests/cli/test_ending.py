"""However a command ends, and whoever stopped listening: it says what happened, shows no traceback, loses nothing."""

import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sightline import cli
from sightline.collection import FileProblem, IndexingInterrupted, Report

COMMANDS = [
    "index",
    "search",
    "explain",
    "serve",
    "status",
    "remove",
    "eval",
    "compare",
    "regions",
    "train",
    "export",
    "demo",
    "doctor",
    "models",
]


def shell(command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What came of a line of bash, in which $S is the command; what it prints waits until there is much of it."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment = {**buffered, "S": f"{sys.executable} -m sightline", **environment}
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)


def end(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> object:
    """The exit code of the whole command."""
    monkeypatch.setattr("sys.argv", ["sightline", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_help_lists_the_commands_in_the_order_in_which_one_needs_them() -> None:
    assert [command.name for command in cli.app.registered_commands] == COMMANDS


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "mine/secret"), "mine/secret: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
    ids=["permission", "room"],
)
def test_what_the_disk_refuses_is_a_message(
    error: OSError, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise error

    monkeypatch.setattr("sightline.registry.installed.installed_models", refuse)
    assert end(monkeypatch, "models") == 1
    assert capsys.readouterr().err == f"sightline: {message}\n"


def test_a_mistake_in_the_program_is_not_taken_for_one_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError("nobody knows")

    monkeypatch.setattr("sightline.registry.installed.installed_models", fail)
    monkeypatch.setattr("sys.argv", ["sightline", "models"])
    with pytest.raises(OSError, match="nobody knows"):
        cli.main()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_ends_every_command_in_peace(unbuffered: str) -> None:
    done = shell("for c in models 'models --json'; do $S $c | true; echo ${PIPESTATUS[0]}; done",
                 PYTHONUNBUFFERED=unbuffered)  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["0", "0"], "")


def test_results_that_are_left_to_the_end_are_read_by_nobody_in_peace() -> None:
    done = shell("$S --version | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout.split(), done.stderr) == (["0"], "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk here is always full")
def test_results_for_which_there_is_no_room_are_an_error() -> None:
    done = shell("$S models --json > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("sightline: the results cannot be written: ")
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


def test_a_command_works_where_stdout_and_stderr_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(
        "sightline.registry.installed.installed_models",
        lambda **_: told.append(sys.stderr.isatty() or sys.stdout.isatty()),
    )
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    try:
        assert end(monkeypatch, "models") == 0
    finally:
        sys.stdout.close()
        sys.stderr.close()
    assert told == [False]


def test_a_name_that_the_terminal_cannot_write_is_shown_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(tmp_path, "images", broken=[FileProblem("caf\u00e9.jpg", "is empty")])
    monkeypatch.setattr("sightline.collection.indexing.sync.index", lambda *_, **__: report)
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert end(monkeypatch, "index", tmp_path) == 0
    assert b"  caf?.jpg: is empty\n" in sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]


def test_ctrl_c_in_a_command_that_foresees_none_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sightline.registry.installed.installed_models", interrupted)
    assert end(monkeypatch, "models") == 130
    assert capsys.readouterr().err == "sightline: interrupted\n"


@pytest.mark.parametrize("done", [0, 3])
def test_ctrl_c_is_answered_at_once_and_again_when_indexing_has_ended(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def index(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(9)
        except KeyboardInterrupt:
            raise IndexingInterrupted(Report(tmp_path, "images", new=done)) from None

    monkeypatch.setattr("sightline.collection.indexing.sync.index", index)
    assert end(monkeypatch, "index", tmp_path) == 130
    first, second, third = capfd.readouterr().err.strip().splitlines()
    assert "press Ctrl-C again to stop at once" in first
    assert second.startswith(f"sightline: interrupted; {'3 new; ' if done else 'nothing has been done yet'}")
    assert "run the same command to continue" in third
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_anything_is_indexed_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def index(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sightline.collection.indexing.sync.index", index)
    assert end(monkeypatch, "index", tmp_path) == 130
    assert "interrupted; nothing has been done yet" in capfd.readouterr().err


def test_a_second_ctrl_c_does_not_wait_for_what_has_begun(tmp_path: Path) -> None:
    script = """
import os, signal, sys, time
from sightline import cli
from sightline.collection.indexing import sync
def index(*_, **__):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
sync.index = index
sys.argv = ["sightline", "index", sys.argv[1]]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_result_that_may_not_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o555)
    assert end(monkeypatch, "eval", "no-model", "no-data", "--json", tmp_path / "r.json") == 1
    assert "you do not have permission to write to it" in capsys.readouterr().err
