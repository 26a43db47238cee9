"""The saved state of a run, replaced atomically, so that a run killed at any moment resumes from the last save.

In distributed training, each process writes its part of the optimiser's moments, which make up most of a state, and the
leading one writes everything else. Any number of processes can resume from a state: each reads all parts.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import SightlineError
from sightline.models import checkpoint
from sightline.training.distributed import ALONE, World

STATE_FILE = "run.json"
_PATIENCE = 30.0  # seconds to wait for a network disk to show a folder that another machine created


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The progress of a run: steps done, the best validation result so far and its step."""

    step: int = 0
    best: float | None = None
    best_step: int = 0

    def is_stuck(self, patience: int) -> bool:
        """Return whether `patience` steps have brought no improvement; 0 for any number of steps."""
        return 0 < patience <= self.step - self.best_step and self.best is not None


@contextlib.contextmanager
def put_in_place(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` when it is complete.

    A folder cannot be replaced atomically: the old one is renamed, then the new one. A run killed in between leaves the
    old one under another name, where `find_whole` finds it. If writing fails, the new folder is deleted.
    """
    new, old = _beside(folder), _before(folder)
    shutil.rmtree(new, ignore_errors=True)
    try:
        with _saving(folder):
            yield new
    except SightlineError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _saving(folder: Path) -> Iterator[None]:
    """Turn failures to write within a `with` block, such as a full disk, into an error that names the folder."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise SightlineError(
            f"{folder}: cannot be saved: {error}",
            "Check the space on the disk; then continue from the last save with --resume.",
        ) from error


def find_whole(folder: Path) -> Path | None:
    """The last complete version of a folder that `put_in_place` writes: the folder itself, or the renamed old one."""
    return next((candidate for candidate in (folder, _before(folder)) if candidate.exists()), None)


def _beside(folder: Path) -> Path:
    return folder.with_name(folder.name + ".new")


def _before(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def save_state(
    folder: Path,
    model: checkpoint.AnyRetriever,
    tokenizer: Tokenizer,
    optimizer: torch.optim.Optimizer,
    losses: nn.ModuleDict,
    progress: TrainingProgress,
    more: Mapping[str, Tensor] | None = None,
    world: World = ALONE,
) -> None:
    """Replace the saved state, including `more` tensors by name; written to another folder first, then renamed.

    Every process of `world` calls this, and none returns before the state is complete.
    """
    with put_in_place(folder) if world.leads else contextlib.nullcontext(_beside(folder)) as new:
        tensors = _moments(optimizer, world)
        if world.leads:
            checkpoint.save(model, tokenizer, new)
            (new / STATE_FILE).write_text(json.dumps(asdict(progress)) + "\n", encoding="utf-8")
            tensors |= _weights(losses) | dict(more or {})
        world.wait()
        _check_seen(new)
        with _saving(folder):
            save_file(tensors, new / _part(world.rank, world.size))
        world.wait()
    world.wait()


def find_state(folder: Path) -> Path | None:
    """Return the last complete state saved at `folder`, if any."""
    found = find_whole(folder)
    return found if found and (found / STATE_FILE).is_file() else None


def saved_step(folder: Path) -> int:
    """Return the number of steps that the last complete state had taken; 0 if none was saved."""
    found = find_state(folder)
    return int(json.loads((found / STATE_FILE).read_text(encoding="utf-8"))["step"]) if found else 0


def saved_tensors(folder: Path, prefix: str) -> dict[str, Tensor]:
    """Return the tensors saved as `more` whose names begin with `prefix`, keyed by the rest of their names."""
    with safe_open(str(_parts(folder)[0]), framework="pt") as tensors:
        names = [name for name in tensors.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name.removeprefix(prefix): tensors.get_tensor(name) for name in names}


def load_state(folder: Path, optimizer: torch.optim.Optimizer, losses: nn.ModuleDict) -> TrainingProgress:
    """Restore the optimiser and the losses; the model is loaded like any checkpoint."""
    try:
        tensors = {name: value for part in _parts(folder) for name, value in load_file(part).items()}
        progress = TrainingProgress(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
    except SightlineError:
        raise
    except Exception as error:  # damaged files raise many kinds of exceptions
        raise SightlineError(f"{folder}: the saved state cannot be read: {error}", "Start the run again.") from error
    losses.load_state_dict(_below("losses/", tensors))
    counts_there = bool(optimizer.defaults.get("fused"))  # a fused optimiser counts steps on the parameter's device
    for index, parameter in enumerate(_parameters(optimizer)):
        state = _below(f"optimizer/{index}/", tensors)
        if state:
            moved = {k: v.to(parameter.device) for k, v in state.items() if v.ndim or counts_there}
            optimizer.state[parameter] = state | moved
    return progress


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _weights(losses: nn.ModuleDict) -> dict[str, Tensor]:
    """Return the weights of the losses, by name."""
    return {f"losses/{name}": value.detach().clone() for name, value in losses.state_dict().items()}


def _moments(optimizer: torch.optim.Optimizer, world: World) -> dict[str, Tensor]:
    """Return the part of the optimiser's moments that this process writes, named by the index of their parameter."""
    tensors = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        if index % world.size == world.rank:
            for name, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{index}/{name}"] = torch.as_tensor(value).detach().clone().contiguous()
    return tensors


def _part(rank: int, size: int) -> str:
    """Return the file that a process writes; a single process has no number in the name."""
    return f"optimizer-{rank + 1}-of-{size}.safetensors" if size > 1 else "optimizer.safetensors"


def _parts(folder: Path) -> list[Path]:
    """Return the files of a state, starting with the leading process's; raises an error if one is missing."""
    found = {path.name for path in folder.glob("optimizer*.safetensors")}
    size = max(
        (int(name.removesuffix(".safetensors").rpartition("-")[2]) for name in found if "-of-" in name), default=1
    )
    wanted = [_part(rank, size) for rank in range(size)]
    if missing := [name for name in wanted if name not in found]:
        raise SightlineError(
            f"{folder}: the saved state is incomplete; missing files: {', '.join(missing)}",
            "Copy all of its files here, or start the run again.",
        )
    return [folder / name for name in wanted]


def _check_seen(folder: Path) -> None:
    """Wait until this process sees the folder that the leading one created; raise an error if it never does."""
    deadline = time.monotonic() + _PATIENCE
    while not folder.is_dir():
        if time.monotonic() > deadline:
            raise SightlineError(
                f"{folder}: was created by the first process, but is not visible to this one",
                "Set --out to a folder on a disk that all machines share.",
            )
        time.sleep(0.1)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
