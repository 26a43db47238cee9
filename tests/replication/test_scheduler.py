"""Commands that run side by side, and what the papers still lack."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from replication import paper3, remaining, scheduler
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
    some, none = Job("some", python(""), tries=("bad", "good")), Job("none", python(""), tries=("bad", "direct"))
    found = run(tmp_path, bad, good, direct, indirect, some, none).done
    assert {name for name, is_good in found.items() if is_good} == {"good", "some"}
    assert found.keys() == {"bad", "good", "direct", "indirect", "some", "none"}
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


def test_arguments_can_depend_on_earlier_results(tmp_path: Path) -> None:
    def made() -> list[str]:
        return python(f"print({(tmp_path / 'first.log').read_text().strip()!r} * 2)")

    found = run(
        tmp_path,
        Job("first", python("print('ab')")),
        Job("second", made, after=("first",)),
        Job("left out", lambda: None, after=("first",)),
    )
    assert found.done == {"first": True, "second": True, "left out": True}
    assert (tmp_path / "second.log").read_text() == "abab\n"
    assert not (tmp_path / "left out.log").exists()


def write_val(results: Path, run: str, sums: dict[str, float]) -> None:
    folder = results / "paper3" / "val"
    folder.mkdir(parents=True, exist_ok=True)
    for pair, found in sums.items():
        (folder / f"{run}@{pair}-kl-val-seed0.json").write_text(json.dumps({"result": {"rSum": found}}))


def test_the_best_temperatures_are_used(tmp_path: Path) -> None:
    write_val(tmp_path, "I-B-F", {"0.25x0.08": 391.0, "0.5x0.08": 390.0})
    assert remaining.with_chosen("I-B-F", 1, tmp_path) == [
        *("-m", "replication.paper3", "--runs", "I-B-F", "--seeds", "1", "--variant", "kl", "--chosen", "I-B=0.25x0.08")
    ]
    teacher, student = paper3.CHOSEN["B"]
    write_val(tmp_path, "B-F", {f"{teacher:g}x{student:g}": 400.0, "4x0.32": 300.0})
    assert remaining.with_chosen("B-F", 0, tmp_path) is None  # it was measured with these


def test_every_remaining_run_exists_and_measured_ones_are_left_out(tmp_path: Path) -> None:
    jobs = [*remaining.teachers(), *remaining.distilled(tmp_path), *remaining.others(tmp_path)]
    names = {job.name for job in jobs}
    assert len(names) == len(jobs)
    for job in jobs:
        assert {*job.after, *job.tries} <= names
        run = job.name.split()[0]
        assert run in paper3.RUNS or "replication.paper2" in job.arguments  # type: ignore[operator]
    (tmp_path / "paper2").mkdir()
    (tmp_path / "paper2" / "k-1-test-seed2.json").touch()
    assert names - {job.name for job in remaining.others(tmp_path)} >= {"k-1 2"}
    assert "k-1 1" in {job.name for job in remaining.others(tmp_path)}
