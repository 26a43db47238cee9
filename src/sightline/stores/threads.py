"""Work over many rows, piece by piece, in as many threads as may run at once."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from sightline.media.loader import usable_cpus

T = TypeVar("T")

_THREADS = min(8, usable_cpus())


def in_pieces(work: Callable[[slice], T], count: int, piece: int) -> list[T]:
    """Do some work over rows 0 to `count`, `piece` rows at a time; what it gives comes back in the order of the rows.

    The calling thread takes piece after piece, and so does every helper that the system gives a turn meanwhile: who
    has a busy machine waits hardly longer than if the caller had worked alone. Of no rows, there is one empty piece.
    """
    pieces = [slice(start, min(start + piece, count)) for start in range(0, max(count, 1), piece)]
    given: dict[int, T] = {}
    left = iter(enumerate(pieces))

    def take() -> None:
        for number, some in left:
            given[number] = work(some)

    helpers = [_pool().submit(take) for _ in range(min(_THREADS, len(pieces)) - 1)]
    try:
        take()
    finally:
        for helper in helpers:
            if not helper.cancel():  # it had its turn: wait for what it still does
                helper.result()
    return [given[number] for number in range(len(pieces))]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sightline-pieces")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay behind in the parent
