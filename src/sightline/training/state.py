"""The state of a run on disk: whole or not at all, so that a run killed at any moment goes on where it last saved."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sightline.bundle.tokenizing import Tokenizer
from sightline.errors import SightlineError
from sightline.models import checkpoint

STATE_FILE = "run.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands: steps done, the best validation result so far and the step it was seen at."""

    step: int = 0
    best: float | None = None
    best_step: int = 0


@contextlib.contextmanager
def put_in_place(folder: Path) -> Iterator[Path]:
    """Give a new folder to fill, which takes the place of `folder` once it is whole.

    A folder cannot be replaced in one stroke: the old one is renamed out of the way, the new one into its place. A run
    killed between the two leaves the old one under another name, where `find_whole` finds it.
    """
    new, old = folder.with_name(folder.name + ".new"), _before(folder)
    shutil.rmtree(new, ignore_errors=True)
    yield new
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def find_whole(folder: Path) -> Path | None:
    """Find what `put_in_place` last left whole: the folder itself, or the one before it if it was killed in between."""
    return next((candidate for candidate in (folder, _before(folder)) if candidate.exists()), None)


def _before(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def save_state(
    folder: Path,
    model: checkpoint.AnyRetriever,
    tokenizer: Tokenizer,
    optimizer: torch.optim.Optimizer,
    objectives: nn.ModuleDict,
    standing: Standing,
) -> None:
    """Replace the saved state by this one. Everything is written beside it first, then renamed."""
    with put_in_place(folder) as new:
        checkpoint.save(model, tokenizer, new)
        save_file(_tensors(optimizer, objectives), new / "optimizer.safetensors")
        (new / STATE_FILE).write_text(json.dumps(asdict(standing)) + "\n", encoding="utf-8")


def find_state(folder: Path) -> Path | None:
    """Find the last whole state that was saved at `folder`, if any was."""
    found = find_whole(folder)
    return found if found and (found / STATE_FILE).is_file() else None


def saved_step(folder: Path) -> int:
    """Say how many steps the last whole state has behind it; 0 where none was saved."""
    found = find_state(folder)
    return int(json.loads((found / STATE_FILE).read_text(encoding="utf-8"))["step"]) if found else 0


def load_state(folder: Path, optimizer: torch.optim.Optimizer, objectives: nn.ModuleDict) -> Standing:
    """Put the optimiser and the objectives back as they were; the model itself is loaded as any checkpoint."""
    try:
        tensors = load_file(folder / "optimizer.safetensors")
        standing = Standing(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
    except Exception as error:  # damaged files raise all sorts
        raise SightlineError(f"{folder}: the saved state cannot be read: {error}", "Start the run anew.") from error
    objectives.load_state_dict(_below("objectives/", tensors))
    for index, parameter in enumerate(_parameters(optimizer)):
        state = _below(f"optimizer/{index}/", tensors)
        if state:
            optimizer.state[parameter] = {k: v.to(parameter.device) if v.ndim else v for k, v in state.items()}
    return standing


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _tensors(optimizer: torch.optim.Optimizer, objectives: nn.ModuleDict) -> dict[str, Tensor]:
    """Name the optimiser's moments by the place of their parameter, and the objectives' own weights."""
    tensors = {f"objectives/{name}": value.detach().clone() for name, value in objectives.state_dict().items()}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{index}/{name}"] = torch.as_tensor(value).detach().clone().contiguous()
    return tensors


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
