"""Commands that run side by side, and what the papers still lack."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.provenance import RESULTS
from replication import paper2, paper3, remaining, scheduler
from replication.scheduler import Job, Scheduler


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_PAUSE", 0.02)
    monkeypatch.setattr(scheduler, "_APART", 0.0)


def run(folder: Path, *jobs: Job, processes: int = 4, gigabytes: float = 10.0, seconds: float = 60.0) -> Scheduler:
    made = Scheduler(processes, gigabytes, time.time() + seconds, folder, spare=0.0)
    made.run(jobs)
    return made


def python(code: str) -> list[str]:
    return ["-c", code]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def at_once(folder: Path) -> int:
    """The most jobs that ran at a time."""
    most = now = 0
    for event in events(folder):
        now += ("start" in event) - ("returncode" in event)
        most = max(most, now)
    return most


def test_a_job_waits_for_those_it_needs_and_keeps_its_output(tmp_path: Path) -> None:
    file = tmp_path / "made"
    second = Job("second", python(f"print(open({str(file)!r}).read())"), after=("first",))
    first = Job("first", python(f"import time; time.sleep(0.3); open({str(file)!r}, 'w').write('by the first')"))
    assert run(tmp_path, second, first).done == {"first": True, "second": True}
    assert (tmp_path / "second.log").read_text() == "by the first\n"


def test_a_job_that_needs_a_failed_one_is_not_run(tmp_path: Path) -> None:
    bad, good = Job("bad", python("raise SystemExit(3)")), Job("good", python(""))
    direct, indirect = Job("direct", python(""), after=("bad",)), Job("indirect", python(""), after=("direct",))
    assert run(tmp_path, bad, good, direct, indirect).done == {
        "bad": False, "good": True, "direct": False, "indirect": False
    }  # fmt: skip
    with pytest.raises(ValueError, match="no jobs \\['lost'\\]"):
        run(tmp_path, Job("one", python(""), after=("lost",)))


@pytest.mark.parametrize(("limits", "most"), [({"processes": 1}, 1), ({"gigabytes": 6.0}, 2), ({}, 3)])
def test_only_so_many_run_at_once(limits: dict[str, Any], most: int, tmp_path: Path) -> None:
    run(tmp_path, *(Job(str(number), python("import time; time.sleep(0.5)"), 3.0) for number in range(4)), **limits)
    assert at_once(tmp_path) == most


def test_nothing_runs_longer_than_allowed(tmp_path: Path) -> None:
    began = time.monotonic()
    found = run(
        tmp_path, Job("long", python("import time; time.sleep(60)")), Job("next", [], after=("long",)), seconds=1
    )
    assert time.monotonic() - began < 20
    assert not found.done
    assert events(tmp_path)[-1]["left"] == ["next", "long"]


def test_every_remaining_run_exists_and_measured_ones_are_left_out(tmp_path: Path) -> None:
    jobs = {job.name: job for job in remaining.missing(tmp_path)}
    for name, job in jobs.items():
        paper = paper2 if "replication.paper2" in job.arguments else paper3
        assert name.split()[0] in paper.RUNS
    (tmp_path / "paper2").mkdir()
    (tmp_path / "paper2" / "k-1-test-seed2.json").touch()
    left = {job.name for job in remaining.missing(tmp_path)}
    assert jobs.keys() - left == {"k-1 2"}


def test_the_names_of_results_are_those_that_the_scripts_write() -> None:
    """Figure 6's first seed was measured long ago: it must be found."""
    assert "k-1 0" in {job.name for job in remaining.missing(Path("nowhere"))}
    assert "k-1 0" not in {job.name for job in remaining.missing(RESULTS)}
