"""A process that has everything imported and forks a child for each run, so that a run to be killed costs little.

Started with the bundle, the photos, the collection's folder and a log as its arguments. For each line on stdin, which
is a number of seconds and perhaps `quick` or `refine`, it forks a child that indexes so, kills it after that time, and
tells how it ended. A child writes to the log what it has committed, and to another what it has refined.
"""

import os
import signal
import sys
import time
from pathlib import Path

from PIL import PngImagePlugin  # noqa: F401

from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec
from sightline.collection import index
from sightline.collection.indexing import batches, commits, writer
from sightline.collection.indexing.refine import Refiner


def refined_log(log: Path) -> Path:
    """The log of the contents, by hash, that were refined."""
    return log.with_suffix(".refined")


def child(model: Bundle, photos: Path, at: Path, log: Path, quick: bool = False, refine: bool = False) -> None:
    """Index in small batches, so that there is much to interrupt, and note what was committed."""
    write = writer.Writer.write

    def noted(writer: writer.Writer, batch: writer.EncodedBatch) -> None:
        write(writer, batch)
        names = [outcome.found.path for outcome in batch.files if outcome.facts]
        with log.open("a") as file:
            file.write("".join(f"{name}\n" for name in names))

    replace = Refiner.write

    def noted_too(refiner: Refiner, batch: writer.EncodedBatch) -> None:
        replace(refiner, batch)
        with refined_log(log).open("a") as file:
            file.write("".join(f"{fact.hash.hex()}\n" for facts, _ in batch.contents for fact in facts))

    writer.Writer.write = noted  # type: ignore[method-assign]
    Refiner.write = noted_too  # type: ignore[method-assign]
    batches.AT_ONCE["cpu"]["images"] = 2
    commits._COMMIT_SECONDS = 0.0
    index(photos, at=at, model=model, quick=quick, refine=refine)


def ended(pid: int, seconds: float) -> int:
    """Give a child some time, then kill it; its exit code, negative for a signal."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    bundle, *folders = [Path(argument) for argument in sys.argv[1:]]
    model = Bundle(bundle, read_spec(bundle), threads=1)  # no threads, so that children can go on with it
    model.prepare("image", wait=True)
    for line in sys.stdin:
        seconds, *options = line.split()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(model, *folders, **dict.fromkeys(options, True))  # type: ignore[arg-type]
                code = 0
            finally:
                os._exit(code)
        print(ended(pid, float(seconds)), flush=True)


if __name__ == "__main__":
    main()
