"""A writing process may die at any moment; readers may look on at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sightline.errors import StoreError
from sightline.stores.local import LocalStore
from stores import writer
from stores.plain import SHAPE, Plain, check_found, items, queries
from stores.test_any_store import check_whole

KILLS = 30


def start(folder: Path, steps: int | None = writer.FOREVER) -> "subprocess.Popen[str]":
    """Start a process that writes; without `steps`, one that forks others which do."""
    command = [sys.executable, writer.__file__, str(folder), *([] if steps is None else [str(steps)])]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed(process: "subprocess.Popen[str]", seconds: float) -> list[int]:
    """Have a child write, kill it some time after its first step; the steps that it said it had done since."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("go\n")
    process.stdin.flush()
    child = int(process.stdout.readline())
    process.stdout.readline()
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return [int(line) for line in iter(process.stdout.readline, f"{writer.ENDED}\n")]


def after(steps: int) -> Plain:
    plain = Plain()
    plain.add(*items(writer.ids_after(steps)))
    return plain


def test_a_killed_writer_leaves_what_some_flush_wrote(tmp_path: Path) -> None:
    luck = random.Random(0)
    total, in_between = 0, 0
    with start(tmp_path, None) as process:
        for _ in range(KILLS):
            told = killed(process, luck.uniform(0, 0.06))
            said = told[-1] if told else total + 1
            reader = LocalStore.open(tmp_path, SHAPE, write=False)
            steps = writer.steps_of(reader.ids())
            assert steps in (said, said + 1), "a flush that was confirmed is lost, or one that never was is there"
            check_whole(reader, after(steps))
            reader.close()
            in_between += any(beyond_head(tmp_path))
            total = steps
    assert total > KILLS
    assert in_between, "no kill came while files and head disagreed: the test has lost its edge"
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    assert not any(beyond_head(tmp_path))
    check_whole(store, after(total))
    store.close()


def beyond_head(folder: Path) -> list[str]:
    """Files with more in them than the head says, and files of other generations."""
    from sightline.stores.generation import Generation
    from sightline.stores.head import read_head

    head = read_head(folder)
    assert head is not None
    files = Generation(folder, head, write=False)
    sizes = {column.path.name: column.bytes for column in files._columns.values()}
    files.close()
    others = (path for path in folder.glob("*.*") if not path.name.startswith("head.json") and "-sums" not in path.name)
    return [path.name for path in others if path.stat().st_size != sizes.get(path.name)]


def test_a_reader_sees_whole_flushes_while_another_process_writes_and_compacts(tmp_path: Path) -> None:
    seen = []
    with start(tmp_path, steps=200) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reader = LocalStore.open(tmp_path, SHAPE, write=False)
        while process.poll() is None:
            if reader.refresh():
                steps = writer.steps_of(reader.ids())
                check_whole(reader, after(steps))
                seen.append(steps)
            another = LocalStore.open(tmp_path, SHAPE, write=False)
            assert writer.steps_of(another.ids()) >= (seen[-1] if seen else 0)
            another.close()
        process.stdout.read()
    reader.refresh()
    check_whole(reader, after(200))
    reader.close()
    assert len(seen) > 3
    assert seen == sorted(seen)


def test_a_reader_goes_on_with_the_files_it_has_while_others_take_their_place(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    store.add(*items(range(50)))
    store.flush()
    reader = LocalStore.open(tmp_path, SHAPE, write=False)
    for some in (np.arange(0, 50, 3), np.arange(0, 50, 2)):
        store.delete(some)
        store.compact()
    before, asked = Plain(), queries(0, 3)
    before.add(*items(range(50)))
    check_found(reader.search(asked, 9), before, asked, 9, None, 2e-6)
    check_whole(reader, before)
    assert reader.refresh()
    assert not reader.refresh()
    assert reader.ids().tolist() == store.ids().tolist() == [n for n in range(50) if n % 3 and n % 2]
    reader.close()
    store.close()


def test_a_reader_does_not_see_what_is_not_flushed(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, SHAPE, write=True)
    reader = LocalStore.open(tmp_path, SHAPE, write=False)
    store.add(*items(range(5)))
    assert not reader.refresh()
    assert reader.ids().tolist() == []
    store.flush()
    assert reader.refresh()
    assert reader.ids().tolist() == [0, 1, 2, 3, 4]
    reader.close()
    store.close()


def test_only_one_process_writes(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreError, match="another process is writing"):
            LocalStore.open(tmp_path, SHAPE, write=True)
        process.kill()
        process.stdout.read()
    LocalStore.open(tmp_path, SHAPE, write=True).close()
