"""The state of a run on disk: whole or not at all, so that a run killed at any moment goes on where it last saved."""

import json
import shutil
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
    best: float = float("-inf")
    best_step: int = 0


def save_state(
    folder: Path,
    model: checkpoint.AnyRetriever,
    tokenizer: Tokenizer,
    optimizer: torch.optim.Optimizer,
    objectives: nn.ModuleDict,
    standing: Standing,
) -> None:
    """Replace the saved state by this one. Everything is written beside it first, then renamed."""
    new, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    checkpoint.save(model, tokenizer, new)
    save_file(_tensors(optimizer, objectives), new / "optimizer.safetensors")
    (new / STATE_FILE).write_text(json.dumps(asdict(standing)) + "\n", encoding="utf-8")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def find_state(folder: Path) -> Path | None:
    """The last whole state: the folder itself, or the one before it if a run was killed between two renames."""
    for candidate in (folder, folder.with_name(folder.name + ".old")):
        if (candidate / STATE_FILE).is_file():
            return candidate
    return None


def load_state(folder: Path, optimizer: torch.optim.Optimizer, objectives: nn.ModuleDict) -> Standing:
    """Put the optimiser and the objectives back as they were; the model itself is loaded as any checkpoint."""
    try:
        tensors = load_file(folder / "optimizer.safetensors")
        standing = Standing(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
    except Exception as error:  # damaged files raise all sorts
        raise SightlineError(f"{folder}: the saved state cannot be read: {error}", "Start the run anew.") from error
    objectives.load_state_dict({k.removeprefix("objectives/"): v for k, v in tensors.items() if k.startswith("objectives/")})
    for index, parameter in enumerate(_parameters(optimizer)):
        prefix = f"optimizer/{index}/"
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if state:
            optimizer.state[parameter] = {
                k: v.to(parameter.device) if v.ndim else v for k, v in state.items()
            }
    return standing


def _tensors(optimizer: torch.optim.Optimizer, objectives: nn.ModuleDict) -> dict[str, Tensor]:
    """The optimiser's moments by the place of their parameter, and the objectives' own weights."""
    tensors = {f"objectives/{name}": value.detach().clone() for name, value in objectives.state_dict().items()}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{index}/{name}"] = torch.as_tensor(value).detach().clone().contiguous()
    return tensors


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
