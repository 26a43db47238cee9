"""Run commands side by side on one GPU: each as soon as those it needs have ended, as far as memory and time allow."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_PAUSE = 0.5  # seconds between two looks at the running commands
_APART = 1.0  # seconds between two starts: they read the same files


@dataclass(frozen=True, slots=True)
class Job:
    """A command: the arguments of Python, the most memory it takes on the GPU, and jobs that must succeed before it."""

    name: str
    arguments: list[str]
    gigabytes: float = 6.0
    after: tuple[str, ...] = ()


@dataclass(slots=True)
class Scheduler:
    """Runs jobs in the order in which they are given.

    processes, gigabytes: what may run at once. until: when to stop, in seconds since 1970; no job is started in the
    last `spare` seconds. folder: for the output of each job, NAME.log, and the events, events.jsonl.
    """

    processes: int
    gigabytes: float
    until: float
    folder: Path
    spare: float = 120.0
    done: dict[str, bool] = field(default_factory=dict)
    _running: dict[str, tuple[Job, "subprocess.Popen[bytes]", float]] = field(default_factory=dict)

    def run(self, jobs: Iterable[Job]) -> dict[str, bool]:
        """Run all jobs; returns whether they succeeded, without those that there was no time for."""
        waiting = {job.name: job for job in jobs}
        unknown = {name for job in waiting.values() for name in job.after} - waiting.keys()
        if unknown:
            raise ValueError(f"there are no jobs {sorted(unknown)}")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            while (waiting or self._running) and time.time() < self.until:
                self._collect()
                for job in list(waiting.values()):
                    if self._is_settled(job) or self._is_started(job):
                        del waiting[job.name]
                if waiting and not self._running and time.time() > self.until - self.spare:
                    break
                time.sleep(_PAUSE)
        finally:
            for _, process, _ in self._running.values():
                process.kill()
                process.wait()
        self._tell(end=True, done=sum(self.done.values()), left=[*waiting, *self._running])
        return self.done

    def _is_settled(self, job: Job) -> bool:
        """Return whether a job can no longer be run, because of one that failed."""
        failed = {name for name, is_good in self.done.items() if not is_good}
        is_lost = not failed.isdisjoint(job.after)
        if is_lost:
            self.done[job.name] = False
            self._tell(job=job.name, needs="a job that failed")
        return is_lost

    def _is_started(self, job: Job) -> bool:
        """Start a job if it may run now; returns whether it was started."""
        if not all(name in self.done for name in job.after):
            return False
        taken = sum(one.gigabytes for one, *_ in self._running.values())
        is_full = len(self._running) >= self.processes or taken + job.gigabytes > self.gigabytes
        if is_full or time.time() > self.until - self.spare:
            return False
        with (self.folder / f"{job.name}.log").open("wb") as output:
            process = subprocess.Popen([sys.executable, *job.arguments], stdout=output, stderr=subprocess.STDOUT)
        self._running[job.name] = job, process, time.time()
        self._tell(start=job.name, arguments=job.arguments)
        time.sleep(_APART)
        return True

    def _collect(self) -> None:
        """Note which commands have ended."""
        for name, (_, process, began) in list(self._running.items()):
            if process.poll() is not None:
                del self._running[name]
                self.done[name] = process.returncode == 0
                self._tell(job=name, returncode=process.returncode, seconds=round(time.time() - began))

    def _tell(self, **event: object) -> None:
        line = json.dumps({"time": round(time.time()), **event})
        print(line, flush=True)
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
