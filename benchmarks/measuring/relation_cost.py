"""What relations among instances cost: the same training step with and without them, timed (see paper2.py --cost)."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from sightline.media import pixels_wanted
from sightline.models.retriever import Retriever, Seen, Tokens
from sightline.objectives import Objective
from sightline.training.beginning import make_model, make_objectives
from sightline.training.gradients import Side, backward
from sightline.training.optimizer import make_optimizer
from sightline.training.recipe import Recipe, read_recipe

FRAGMENTS, WORDS, BATCH = 36, 32, 128
_TRAINED = {"frozen": [], "three layers": ["optimizer.rates.image=5e-5", "optimizer.frozen_layers.image=9"]}
"""What of the image tower is trained: nothing, so that what it sees is kept; or its three upper layers."""


def measured_cost(recipes: Path, brief: bool) -> dict[str, Any]:
    """Time steps of the base, fusion and standalone recipes at batch 128 with 36 fragments and 32 words.

    brief: a batch of 4, and one step of each.
    """
    batch, repeats = (4, 1) if brief else (BATCH, 30)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    steps = {}
    for tower, changes in _TRAINED.items():
        seconds = {
            name: _seconds(
                read_recipe(recipes / f"hrem-{name}.toml", ["model.pool_to=6", *changes]), batch, repeats, device
            )
            for name in ("base", "fusion", "standalone")
        }
        shares = {name: round(1 - seconds["base"] / seconds[name], 4) for name in ("fusion", "standalone")}
        steps[tower] = {"seconds": seconds, "share_of_relations": shares}
    return {"batch": batch, "fragments": FRAGMENTS, "words": WORDS, "repeats": repeats, "steps": steps}


def _seconds(recipe: Recipe, batch: int, repeats: int, device: torch.device) -> float:
    """Median of the seconds of a step: encode, relate, go back, and move the weights."""
    torch.manual_seed(0)
    model, _ = make_model(recipe, None, [])
    model.to(device)
    objective: Any = make_objectives(recipe, model)["relation" if "relation" in recipe.objectives else "embed"]
    objective.to(device)
    optimizer = make_optimizer(recipe.optimizer, model, [objective])
    step = _step(model.train(), objective, optimizer, recipe.optimizer.clip, batch, device)
    times = []
    for _ in range(repeats + min(repeats, 5)):
        began = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return round(median(times[-repeats:]), 5)


def _step(
    model: Retriever,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    clip: float,
    batch: int,
    device: torch.device,
) -> Callable[[], None]:
    """Make a training step on random pictures and texts."""
    rows = torch.arange(batch, device=device)
    ids = torch.randint(1000, 20000, (batch, WORDS), device=device)
    size = pixels_wanted(model.preprocess).size
    pixels = torch.randn(batch, 3, size, size, device=device)
    images: Tensor | Seen = pixels
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    if not any(parameter.requires_grad for parameter in model.parts()["image"].parameters()):
        with torch.no_grad(), half:
            images = model.look(pixels)
    words = Tokens(ids, torch.ones_like(ids, dtype=torch.bool))
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    texts, pictures = Side(lambda _: model.encode_texts(words), rows), Side(lambda _: model.encode_images(images), rows)

    def step() -> None:
        with half:
            backward(model, {"it": (objective, 1.0)}, texts, pictures, seed=0)
        nn.utils.clip_grad_norm_(trained, clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
