"""The steps of measuring a way of retrieval: build it, tune it, ask it, filter it, change it."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photo_vectors import Longs, Singles, around, blocks, recall
from benchmarks.vector_search.case import SHARES, Case
from benchmarks.vector_search.indexes import OURS, Index, Way

LEAST_RECALL, ALL = 0.97, 0.999  # whoever finds so much finds all of it
EQUAL, LEAST = "finding as much as Sightline", f"at a recall of {LEAST_RECALL}"
CHANGED_UP_TO = 1_000_000  # a copy of more, to be changed, takes too much room
NEW = 1_000
Ask = Callable[[Singles], Longs]


def build(case: Case, way: Way) -> dict[str, float]:
    """Build what a way needs; the seconds, without those in which vectors were made or read, and the room it takes."""
    begun, done = case.at / f"{way.folder}-begun", case.at / way.folder
    for left_behind in (begun, done):
        shutil.rmtree(left_behind, ignore_errors=True)
    begun.mkdir(parents=True)
    parts = Waiting(around(case.real(), case.size) if way is OURS else blocks(case.vectors()))
    started = time.perf_counter()
    way.build(iter(parts), begun, case.settings.care)
    seconds = time.perf_counter() - started - parts.seconds
    begun.rename(done)
    return {"build_seconds": seconds, "MB_on_disk": sum(file.stat().st_size for file in done.iterdir()) / 1e6}


class Waiting:
    """Blocks of vectors that count the seconds for which they are waited for."""

    def __init__(self, parts: Iterable[Singles]) -> None:
        self._parts, self.seconds = parts, 0.0

    def __iter__(self) -> Iterator[Singles]:
        parts = iter(self._parts)
        while True:
            began = time.perf_counter()
            some = next(parts, None)
            self.seconds += time.perf_counter() - began
            if some is None:
                return
            yield some


def ask(case: Case, way: Way, cores: int) -> dict[str, Any]:
    """What a way finds, how long that takes, and in how much memory: at both aims, with filters, after changes."""
    before = resident()
    index = way.open(case.at / way.folder, cores)
    queries, right = case.queries(), case.right(None)
    efforts = aims(case, way, cores, partial(least_effort, index, queries[::2], right[::2]), index.efforts() is None)
    measured = partial(measure, queries[1::2], case.settings.seconds)
    result: dict[str, Any] = {
        aim: {"effort": effort, **measured(partial(index.ask, effort=effort), right[1::2])}
        for aim, effort in efforts.items()
    }
    result |= {name: megabytes - before[name] for name, megabytes in resident().items()}
    for share in SHARES:
        among = np.flatnonzero(case.allowed(share))
        asking = partial(index.ask, effort=efforts[EQUAL], among=among)
        result[f"among {share}"] = measured(asking, case.right(share)[1::2])
    index.close()
    if cores == case.settings.cores and case.size <= CHANGED_UP_TO and way.key == way.folder:
        result |= change(case, lambda at: way.open(at, cores), way.folder, efforts[EQUAL], measured)
    return result


def aims(case: Case, way: Way, cores: int, tuned: Callable[[float], int], is_exact: bool) -> dict[str, int | None]:
    """The effort for each aim. Sightline's own is the first aim, and a way that compares everything has but that."""
    if is_exact:
        return {EQUAL: None}
    if way is OURS:
        return {EQUAL: None, LEAST: tuned(LEAST_RECALL)}
    ours = case.noted(f"{OURS.key}-{cores}")[EQUAL]["recall@20"]
    return {EQUAL: tuned(max(min(ours, ALL), LEAST_RECALL)), LEAST: tuned(LEAST_RECALL)}


def least_effort(index: Index, queries: Singles, right: Longs, target: float) -> int:
    """The least effort that finds the target, within a sixteenth, or the greatest that there is."""
    limits = index.efforts()
    assert limits is not None

    def is_enough(effort: int) -> bool:
        return recall([index.ask(query, effort) for query in queries], right) >= target

    low = high = limits[0]
    while high < limits[1] and not is_enough(high):
        low, high = high, min(2 * high, limits[1])
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def measure(queries: Singles, seconds: float, one: Ask, right: Longs) -> dict[str, float]:
    """Recall, and milliseconds a query: the median and the 99th percentile over as many rounds as there is time for.

    The first round may take four times as long; what it has not asked by then, if it has asked ten, it does not.
    """
    one(queries[0])
    answers: list[Longs] = []
    took: list[float] = []
    began = time.perf_counter()
    while len(took) < len(queries) or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        answers.append(one(queries[len(took) % len(queries)]))
        took.append(1000 * (time.perf_counter() - start))
        if len(took) >= 10 and time.perf_counter() - began > 4 * seconds:
            break
    first = answers[: len(queries)]
    p50, p99 = np.percentile(took, (50, 99)).tolist()
    return {"recall@20": recall(first, right[: len(first)]), "p50_ms": p50, "p99_ms": p99}


def change(
    case: Case, open_at: Callable[[Path], Index], folder: str, effort: int | None, measured: Callable[..., Any]
) -> dict[str, Any]:
    """In a copy, delete a half, ask again, and add a thousand; the seconds until each would survive a crash."""
    copy = case.at / "changed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(case.at / folder, copy)
    index = open_at(copy)
    gone, new = np.flatnonzero(~case.allowed(SHARES[-1])), next(around(case.real(), NEW, seed=1))
    result: dict[str, Any] = {}
    try:
        result["delete_half_seconds"] = seconds_of(partial(index.delete, gone))
        result["with_half_deleted"] = measured(partial(index.ask, effort=effort), case.right(SHARES[-1])[1::2])
    except NotImplementedError as error:
        result["delete"] = str(error)
    result["add_1000_seconds"] = seconds_of(partial(index.add, new))
    index.close()
    shutil.rmtree(copy)
    return result


def seconds_of(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def resident() -> dict[str, float]:
    """Megabytes that this process has for itself, and those of files that it reads through the system's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return {"MB_of_its_own": int(kilobytes["RssAnon"]) / 1000, "MB_of_files": int(kilobytes["RssFile"]) / 1000}
