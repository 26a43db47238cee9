"""Runs in processes of their own: several that train as one, and one that is killed."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["sightline.training.trainer", *(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "clip", "vit"))]
)
# Importing torch and transformers takes seconds: the server does it once, and every process begins as a copy of it.


def start(work: Callable[..., None], *arguments: Any) -> Any:
    """Start a process; `work` must be a function that another process can import."""
    process = _context.Process(target=_alone, args=(dict(os.environ), work, arguments), daemon=True)
    process.start()
    return process


def together(work: Callable[..., None], *arguments: Any, count: int = 2) -> None:
    """Run `work` in processes that know of each other as torchrun would tell them, and wait for all to end well."""
    codes = ended(work, *arguments, count=count)
    assert codes == [0] * count, f"the processes ended with {codes}"


def ended(work: Callable[..., None], *arguments: Any, count: int) -> list[int | None]:
    """Run `work` in as many processes, and give the exit codes of all; one that hangs is killed."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in range(count):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        around = {**os.environ, **{name: str(value) for name, value in place.items()}}
        started.append(_context.Process(target=_alone, args=(around, work, arguments), daemon=True))
        started[-1].start()
    for process in started:
        process.join(timeout=120)
    codes = [process.exitcode for process in started]
    for process in started:
        process.kill()
    return codes


def _alone(around: dict[str, str], work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Work in the environment of the test, not in that of the server, which began with an earlier test."""
    import torch

    os.environ.update(around)
    torch.set_num_threads(1)
    work(*arguments)


def train_each(runs: dict[str, tuple[dict[str, Any], dict[str, Any]]], out: Path) -> None:
    """Train several recipes one after the other, each in a folder of its name."""
    from sightline.training.recipe import parse_recipe
    from sightline.training.trainer import train

    for name, (recipe, options) in runs.items():
        train(parse_recipe(recipe, name), out / name, **options)


def train_slowly(recipe: dict[str, Any], out: Path, save_every: int) -> None:
    """Train with a pause after every step, so that there is time to be killed."""
    from sightline.training.recipe import parse_recipe
    from sightline.training.trainer import train

    train(parse_recipe(recipe, "slow"), out, save_every=save_every, report=lambda _: time.sleep(0.1))


def train_until_killed(recipe: dict[str, Any], out: Path, step: int) -> None:
    """Train, saving after every step, and have the second of the processes killed once `step` is done."""
    from sightline.training import trainer
    from sightline.training.recipe import parse_recipe

    save = trainer._Run._save

    def save_and_die(run: trainer._Run) -> None:
        save(run)
        if run.world.rank == 1 and run.progress.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer._Run._save = save_and_die  # type: ignore[method-assign]
    trainer.train(parse_recipe(recipe, "run"), out, save_every=1)
