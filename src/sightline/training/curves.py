"""Curves of a run for TensorBoard and Weights & Biases."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.packages import install_command
from sightline.training.tables import LogRecipe

CurveSink = Callable[[Mapping[str, Any]], None]
"""A function that is called with every log entry."""


def scalars(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in a log entry by key: losses and their parts, rate, gradient norm, validation scores.

    >>> scalars({"step": 3, "rate": 0.1, "loss": {"embed": 2.0}, "val": {"t2i": {"R@1": 50.0}}})
    {'rate': 0.1, 'loss/embed': 2.0, 'val/t2i/R@1': 50.0}
    """
    return dict(_flat({key: value for key, value in entry.items() if key not in ("step", "steps", "seconds")}))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{before}{name}", float(value)


def open_sinks(recipe: LogRecipe, folder: Path, run: str, step: int) -> list[CurveSink]:
    """Open the sinks that a recipe asks for; entries after `step`, left by an earlier part of the run, are dropped."""
    made = {"tensorboard": _tensorboard, "wandb": _wandb}
    return [made[target](recipe, folder, run, step) for target in recipe.to]


def _tensorboard(_: LogRecipe, folder: Path, __: str, step: int) -> CurveSink:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SightlineError(
            f"log.to: TensorBoard is not installed: {error}", install_command("tensorboard")
        ) from error
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def add(entry: Mapping[str, Any]) -> None:
        for name, value in scalars(entry).items():
            writer.add_scalar(name, value, entry["step"])
        if "val" in entry or entry["step"] == entry["steps"]:
            writer.flush()

    return add


def _wandb(recipe: LogRecipe, folder: Path, run: str, _: int) -> CurveSink:
    try:
        import wandb
    except ImportError as error:
        raise SightlineError(f"log.to: Weights & Biases is not installed: {error}", install_command("wandb")) from error
    opened = wandb.init(project=recipe.project, name=run, dir=str(folder), resume="allow")
    return lambda entry: opened.log(scalars(entry), step=int(entry["step"]))
