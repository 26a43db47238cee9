import os
import threading
import time

import pytest

from sightline import parallel
from sightline.parallel import map_slices


@pytest.fixture(autouse=True)
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_THREADS", 4)


@pytest.mark.parametrize("count", [0, 1, 5, 6, 1003])
def test_pieces_cover_every_row_once_and_come_back_in_order(count: int) -> None:
    given = map_slices(lambda piece: list(range(piece.start, piece.stop)), count, 5)
    assert [row for rows in given for row in rows] == list(range(count))
    assert len(given) == max(1, -(-count // 5))


def two_at_once() -> bool:
    """Whether two threads were seen to work at the same time."""
    together = threading.Barrier(2, timeout=60)
    return sorted(map_slices(lambda piece: together.wait(), 2, 1)) == [0, 1]


def test_several_threads_work_at_once() -> None:
    assert two_at_once()


def test_a_single_piece_needs_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_pool", None)
    assert map_slices(lambda piece: threading.current_thread(), 5, 5) == [threading.current_thread()]


def test_helpers_that_get_no_turn_are_not_waited_for() -> None:
    """As on a machine whose cores have other things to do: here, those of all helpers have."""
    released = threading.Event()
    busy = [parallel._pool().submit(released.wait, 30) for _ in range(parallel._pool()._max_workers)]
    began = time.perf_counter()
    assert len(map_slices(lambda piece: piece, 100, 10)) == 10
    assert time.perf_counter() - began < 10
    released.set()
    assert all(future.result() for future in busy)


@pytest.mark.parametrize("bad", range(4))
def test_what_goes_wrong_in_any_thread_is_told(bad: int) -> None:
    def work(piece: slice) -> None:
        time.sleep(0.002)  # so that everybody gets a piece
        if piece.start == bad:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        map_slices(work, 4, 1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # later versions of Python advise against it
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked here")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    assert two_at_once()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if two_at_once() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
