"""What an indexing run shows meanwhile: sparse lines in a log, a bar on a terminal."""

import io
import sys

import pytest

from sightline.cli import progress
from sightline.cli.progress import Pace, indexing


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "Pace", lambda: Pace(clock=lambda: now))
    with indexing() as report:
        for done in range(1, 101):
            report(done, 100)
            now += 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in told] == [f"indexed {n}/100" for n in (31, 61, 91, 100)]
    assert told[1] == "indexed 61/100  1.0/s  0:38 left"


def test_hours_are_told_as_hours() -> None:
    now = 0.0
    pace = Pace(clock=lambda: now)
    pace.hear(0, 10_000)
    assert str(pace) == "0.0/s  ? left"
    now = 10.0
    pace.hear(10, 10_000)
    assert str(pace) == "1.0/s  2:46:30 left"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_pace_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with indexing() as report:
        report(0, 50)
        report(50, 50)
        shown = sys.stderr
    text = shown.getvalue()
    assert "50/50" in text
    assert "/s  0:00 left" in text
