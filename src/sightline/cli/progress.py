"""Progress of long commands on stderr: a bar on a terminal, otherwise plain lines or nothing."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

EvaluationReport = Callable[[str, int, int], None]
TrainingReport = Callable[[dict[str, Any]], None]
IndexingReport = Callable[[int, int], None]

_LINES = 20  # lines printed for a training run without a terminal, in addition to those with validation results
_TURNS = 50  # steps after which an alternating loss that has not been used again is no longer shown
_SECONDS = 30.0  # seconds between two lines of an indexing run without a terminal


@contextmanager
def evaluating() -> Iterator[EvaluationReport | None]:
    """Show a bar for each part of an evaluation on a terminal; otherwise nothing, as a table follows at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = bars.add_task(part.replace("_", " "), total=total)
            bars.update(tasks[part], completed=done)

        yield report


@dataclass(frozen=True, slots=True)
class TrainingShown:
    """Shows the steps of a training run and, through `prepare`, the work before the first step and validations."""

    step: TrainingReport
    prepare: EvaluationReport

    def __call__(self, entry: dict[str, Any]) -> None:
        """Show one logged step."""
        self.step(entry)


@contextmanager
def training() -> Iterator[TrainingShown]:
    """Show a bar with losses, latest recall and time left on a terminal; otherwise print lines with the same values."""
    latest, paces = Latest(), defaultdict[str, Pace](Pace)
    if not sys.stderr.isatty():

        def wait(part: str, done: int, total: int) -> None:
            paces[part].hear(done, total)
            if done < total and paces[part].is_due():
                print(f"{part}: {done}/{total}  {paces[part]}", file=sys.stderr, flush=True)

        def line(entry: dict[str, Any]) -> None:
            latest.hear(entry)
            if latest.is_due():
                print(f"step {latest.step}/{latest.steps}  {latest}  {latest.time_left} left", file=sys.stderr)

        yield TrainingShown(line, wait)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    texts = (TextColumn("{task.description}"), TextColumn("{task.fields[left]} left"))
    with Progress(BarColumn(), MofNCompleteColumn(), *texts, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=None, left="?")

        def prepare(part: str, done: int, total: int) -> None:
            paces[part].hear(done, total)
            bar.update(task, total=total, completed=done, description=part, left=paces[part].time_left)

        def move(entry: dict[str, Any]) -> None:
            latest.hear(entry)
            bar.update(task, total=latest.steps, completed=latest.step, description=str(latest), left=latest.time_left)

        yield TrainingShown(move, prepare)


@contextmanager
def indexing(done_so: str = "indexed", before: str = "looking for new files") -> Iterator[IndexingReport]:
    """Show a bar with files per second and time left on a terminal; otherwise print them occasionally.

    done_so: a verb for what was done with each file, such as "indexed". before: describes the work before the first
    file. A total of 0 means unknown.
    """
    pace = Pace()
    if not sys.stderr.isatty():

        def line(done: int, total: int) -> None:
            pace.hear(done, total)
            if done and pace.is_due():
                print(f"{done_so} {done}{f'/{total}' if total else ''}  {pace}", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), console=Console(stderr=True)
    ) as bar:
        task = bar.add_task(before, total=None)

        def move(done: int, total: int) -> None:
            pace.hear(done, total)
            bar.update(task, total=total or None, completed=done, description=str(pace))

        yield move


@dataclass(slots=True)
class Pace:
    """The speed of a job, measured from its first update."""

    clock: Callable[[], float] = time.monotonic
    done: int = 0
    total: int = 0
    began: float | None = None
    reported: float | None = None

    def hear(self, done: int, total: int) -> None:
        """Record how much is done, and the total."""
        is_new = self.began is None or done < self.done  # the next job of a command begins at 0 again
        if is_new:
            self.began = self.reported = self.clock()
        self.done, self.total = done, total

    def is_due(self) -> bool:
        """Return whether to print a line: at the end, and every half minute until then."""
        now = self.clock()
        if self.done != self.total and now - (self.reported or 0.0) < _SECONDS:
            return False
        self.reported = now
        return True

    @property
    def rate(self) -> float:
        """Items per second."""
        seconds = self.clock() - (self.began or 0.0)
        return self.done / seconds if seconds > 0 else 0.0

    @property
    def time_left(self) -> str:
        """The estimated time left at the current pace."""
        rate = self.rate
        return _clock_time((self.total - self.done) / rate) if rate else "?"

    def __str__(self) -> str:
        return f"{self.rate:.1f}/s  {self.time_left} left" if self.total else f"{self.rate:.1f}/s"


def _clock_time(seconds: float) -> str:
    left = round(seconds)
    hours, minutes, seconds = left // 3600, left // 60 % 60, left % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@dataclass(slots=True)
class Latest:
    """The latest values of a training run.

    Alternating losses each keep their latest value; a loss that has not been used for a while is no longer shown.
    """

    step: int = 0
    steps: int = 0
    first: int = 0
    seconds: float = 0.0
    losses: dict[str, tuple[int, float]] = field(default_factory=dict)
    val: Mapping[str, Any] | None = None
    news: bool = False

    def hear(self, entry: Mapping[str, Any]) -> None:
        """Add one logged step."""
        self.step, self.steps, self.seconds = entry["step"], entry["steps"], entry["seconds"]
        self.first = self.first or self.step
        heard = {name: (step, loss) for name, (step, loss) in self.losses.items() if self.step - step < _TURNS}
        self.losses = heard | {name: (self.step, loss) for name, loss in entry["loss"].items()}
        self.news = "val" in entry
        self.val = entry.get("val", self.val)

    def is_due(self) -> bool:
        """Return whether to print this step: the first, the last, some in between, and those with a validation."""
        every = max(1, self.steps // _LINES)
        return self.news or self.step in (self.first, self.steps) or self.step % every == 0

    @property
    def time_left(self) -> str:
        """The estimated time left at the pace so far."""
        return _clock_time(self.seconds / (self.step - self.first + 1) * (self.steps - self.step))

    def __str__(self) -> str:
        reported = [f"{name} {loss:.4f}" for name, (_, loss) in self.losses.items()]
        if self.val and self.val["t2i"]:
            reported.append(f"val R@1 {self.val['t2i']['R@1']:.1f} / {self.val['i2t']['R@1']:.1f}")
        return "  ".join(reported)
