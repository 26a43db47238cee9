"""The number of usable CPUs, and a thread pool that works through slices of rows."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use; in a container, fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_THREADS = min(8, usable_cpus())


def map_slices(work: Callable[[slice], T], count: int, step: int) -> list[T]:
    """Call `work` with slices of `step` rows that cover rows 0 to `count`; the results are in row order.

    The calling thread processes slices alongside the threads of a pool, so that even on a busy machine this takes
    little longer than the calling thread would take alone. With no rows, `work` is called once with an empty slice.
    """
    slices = [slice(start, min(start + step, count)) for start in range(0, max(count, 1), step)]
    results: dict[int, T] = {}
    remaining = iter(enumerate(slices))

    def run() -> None:
        for number, rows in remaining:
            results[number] = work(rows)

    helpers = [_pool().submit(run) for _ in range(min(_THREADS, len(slices)) - 1)]
    try:
        run()
    finally:
        for helper in helpers:
            if not helper.cancel():  # already running: wait for its current slice
                helper.result()
    return [results[number] for number in range(len(slices))]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sightline-slices")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
