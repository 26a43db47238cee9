"""A process that writes to a store until it is killed: `python writer.py FOLDER STEPS`.

Step n adds five items and deletes two of an earlier step; every fifth step also compacts. After each flush it prints
how many steps are done. What the store then holds is known to whoever watches: `ids_after`.

Without STEPS, it forks a child that writes for every line on stdin, so that one to be killed costs little. A child
begins by printing its process id, and `ENDED` is printed after it.
"""

import os
import sys
from pathlib import Path

import numpy as np

from sightline.stores.base import Ids
from sightline.stores.local import LocalStore

sys.path.insert(0, str(Path(__file__).parents[1]))
from stores.plain import SHAPE, items

FOREVER = 10**9
ENDED = "ended"


def ids_after(steps: int) -> list[int]:
    deleted = {number for step in range(steps) for number in deleted_in(step).tolist()}
    return [number for step in range(steps) for number in added_in(step).tolist() if number not in deleted]


def steps_of(ids: Ids) -> int:
    return int(ids.max(initial=-1)) // 10 + 1


def added_in(step: int) -> Ids:
    return 10 * step + np.arange(5)


def deleted_in(step: int) -> Ids:
    return 10 * (step - 3) + np.arange(2) if step >= 3 else np.zeros(0, dtype=np.int64)


def say(word: object) -> None:
    """Print a line at once: `print` may write its end separately, and a kill may come in between."""
    os.write(sys.stdout.fileno(), f"{word}\n".encode())


def main(folder: Path, most: int) -> None:
    store = LocalStore.open(folder, SHAPE, write=True)
    for step in range(steps_of(store.ids()), most):
        store.add(*items(added_in(step)[:2]))
        store.add(*items(added_in(step)[2:]))
        store.delete(deleted_in(step))
        if step % 5 == 4:
            store.compact()
        else:
            store.flush()
        say(step + 1)
    store.close()


def fork_writers(folder: Path) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            say(os.getpid())
            main(folder, FOREVER)
        os.waitpid(child, 0)
        say(ENDED)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        fork_writers(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]))
