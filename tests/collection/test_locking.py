"""One process writes at a time; others wait, or are told who is writing; a dead one never blocks."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from collection.made_up import Instant, contents, picture, put
from sightline.collection import Collection, index
from sightline.collection.locks import LOCK_FILE, write_lock
from sightline.errors import CollectionError

HOLD = """
import sys, time
from pathlib import Path
from sightline.collection.locks import write_lock
with write_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
INDEX = """
import sys
sys.path.insert(0, sys.argv[3])
from collection.made_up import Instant
from sightline.collection import index
print(index(sys.argv[1], at=sys.argv[2], model=Instant()).new)
"""


def holding(at: Path) -> "subprocess.Popen[str]":
    """A process that holds the lock until its stdin is closed or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(at)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_who_does_not_wait_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        for wait in (False, 0.2):
            with (
                pytest.raises(CollectionError, match=f"process {process.pid} on .* since 20") as caught,
                write_lock(tmp_path, wait=wait),
            ):
                pass
            assert caught.value.way_out
        process.communicate()


def test_who_waits_is_told_once_and_goes_on_when_the_other_is_done(tmp_path: Path) -> None:
    told: list[str] = []
    with holding(tmp_path) as process:
        timer = threading.Timer(0.5, process.communicate)
        timer.start()
        with write_lock(tmp_path, notify=told.append):
            assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
        timer.join()
    assert len(told) == 1
    assert f"process {process.pid}" in told[0]


def test_a_process_that_was_killed_does_not_block(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.kill()
        process.wait()
        began = time.monotonic()
        with write_lock(tmp_path, wait=60):
            assert time.monotonic() - began < 30


def test_who_comes_between_taking_and_signing_still_learns_the_name(tmp_path: Path) -> None:
    signed = json.dumps({"pid": 7, "host": "here", "since": "2026-01-01"})
    with (tmp_path / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timer = threading.Timer(0.1, (tmp_path / LOCK_FILE).write_text, [signed])
        timer.start()
        with pytest.raises(CollectionError, match="process 7 on here"), write_lock(tmp_path, wait=False):
            pass
        timer.join()


def test_a_lock_that_nobody_signs_is_another_process(tmp_path: Path) -> None:
    with (tmp_path / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(CollectionError, match="another process"), write_lock(tmp_path, wait=False):
            pass


def test_a_lock_is_held_on_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with (
        write_lock(tmp_path),
        pytest.raises(CollectionError, match="another process"),
        write_lock(tmp_path, wait=False),
    ):
        pass


def test_a_lock_can_be_taken_again_and_names_nobody_when_free(tmp_path: Path) -> None:
    for _ in range(2):
        with write_lock(tmp_path, wait=False):
            pass
    assert (tmp_path / LOCK_FILE).read_text() == ""


def test_two_processes_that_index_the_same_folder_index_it_once(photos: Path, tmp_path: Path) -> None:
    at, tests = tmp_path / "at", str(Path(__file__).parents[1])
    command = [sys.executable, "-c", INDEX, str(photos), str(at), tests]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = sorted(int(process.communicate(timeout=60)[0]) for process in both)
    assert counts == [0, 6]
    assert len(contents(at)) == 6


def test_readers_do_not_wait_for_a_writer(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    at = photos / ".sightline"
    with holding(at) as process:
        with Collection.open(at) as collection:
            assert len(collection) == 6
        process.communicate()


def test_a_reader_sees_what_was_indexed_since_it_was_opened(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    with Collection.open(photos / ".sightline") as collection:
        (photos / "town" / "0.png").unlink()
        put(photos / "new.png", picture(20))
        put(photos / "newer.png", picture(21))
        index(photos, model=model)
        assert collection.refresh()
        assert len(collection) == len(collection.store.ids()) == 7
        assert not collection.refresh()
