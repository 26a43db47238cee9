"""Killed at two hundred random moments, a collection loses nothing it had committed and ends up as if undisturbed."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from collection import nursery
from collection.made_up import contents, picture, put, vectors
from sightline.collection import Collection, index

KILLS = 200
PICTURES = 30


class Nursery:
    """The process that forks children which index, and kills them when told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, seconds: float = 60, *options: str) -> int:
        """Index in a child, killed after `seconds`; give its exit code, negative for a signal.

        options: how to index; see `nursery`.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{' '.join([str(seconds), *options])}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def started(*arguments: Path) -> Iterator[Nursery]:
    command = [sys.executable, nursery.__file__, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin
        process.stdin.close()


def disturb(photos: Path, chance: random.Random, fresh: Iterator[int]) -> None:
    """Move, edit, copy, delete and add some pictures, so that the next run has much to do."""
    paths = sorted(photos.rglob("*.png"))
    chance.shuffle(paths)
    for path in paths[:8]:
        path.rename(path.with_name(f"moved-{next(fresh)}.png"))
    for path in paths[8:16]:
        put(path, picture(next(fresh)), path.stat().st_mtime_ns + 10**9)
    for path in paths[16:20]:
        put(photos / f"copy-{next(fresh)}.png", path.read_bytes())
    for path in paths[20 : 20 + max(0, len(paths) - PICTURES) + 8]:
        path.unlink()
    for _ in range(8):
        put(photos / f"new-{(number := next(fresh))}.png", picture(number))


def check_whole(at: Path, photos: Path, log: Path) -> None:
    """Every file that a child said it had committed is there, with its vectors, as far as a reader can see."""
    with Collection.open(at) as collection:
        ids = collection.catalog.ids()
        assert np.isin(ids, collection.store.ids()).all()
        collection.store.fetch(np.array(ids, dtype=np.int64), "states")
        known = {file.path for file in collection.files()}
    committed = set(log.read_text().splitlines()) if log.exists() else set()
    there = {path.relative_to(photos).as_posix() for path in photos.rglob("*.png")}
    assert committed & there <= known


def test_a_collection_survives_being_killed_at_any_moment(tiny_bundle: Path, tmp_path: Path) -> None:
    photos, at, log = tmp_path / "photos", tmp_path / "at", tmp_path / "log"
    chance, fresh = random.Random(7), iter(range(10**6))
    for number in range(PICTURES):
        put(photos / f"{next(fresh)}.png", picture(number + 10**6))
    kills, completed = 0, True
    with started(tiny_bundle, photos, at, log) as nursery:
        assert nursery.run() == 0
        disturb(photos, chance, fresh)
        began = time.perf_counter()
        assert nursery.run() == 0
        usual = time.perf_counter() - began
        while kills < KILLS:
            if completed:
                disturb(photos, chance, fresh)
            code = nursery.run(chance.uniform(0, usual))
            completed = code == 0
            kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL)
            check_whole(at, photos, log)
        assert nursery.run() == 0
    check_whole(at, photos, log)
    undisturbed = tmp_path / "undisturbed"
    index(photos, at=undisturbed, model=tiny_bundle)
    assert contents(at) == contents(undisturbed)
    found, expected = vectors(at), vectors(undisturbed)
    assert found.keys() == expected.keys()
    for hash, vector in expected.items():
        np.testing.assert_allclose(found[hash], vector, atol=2e-3)
