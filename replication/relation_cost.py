"""What relations among instances cost: the same training step with and without them, timed (see paper2.py --cost)."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from sightline.losses import Objective
from sightline.media import require_pixels
from sightline.models.retriever import Retriever, Seen, Tokens
from sightline.training.gradients import Side, backward
from sightline.training.optimizer import make_optimizer
from sightline.training.recipe import Recipe, read_recipe
from sightline.training.setup import make_model, make_objectives

FRAGMENTS, WORDS, BATCH = 36, 32, 128
_BERT = "num_hidden_layers = 12, hidden_size = 768, intermediate_size = 3072, num_attention_heads = 12"
_TRAINED = {
    "frozen": [],
    "three layers": ["optimizer.rates.image=5e-5", "optimizer.frozen_layers.image=9"],
    "frozen, BERT": [f"model.text={{ config = {{ model_type = 'bert', vocab_size = 30522, {_BERT} }} }}"],
}
"""What is trained beside the relations: of the image tower nothing, so that what it sees is kept, or its three upper
layers; and of texts MiniLM, or a BERT of the size that the paper has, beside the paper's 36 regions."""


def measured_cost(recipes: Path, brief: bool) -> dict[str, Any]:
    """Time steps of the base, fusion and standalone recipes at batch 128 with 36 fragments and 32 words.

    brief: a batch of 4, and one step of each.

    On a GPU also the seconds that it computes in a step, without those in which it waits for work.
    """
    batch, repeats = (4, 1) if brief else (BATCH, 30)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    steps = {}
    for trained, changes in _TRAINED.items():
        ways = {
            name: _step_of(read_recipe(recipes / f"hrem-{name}.toml", ["model.pool_to=6", *changes]), batch, device)
            for name in ("base", "fusion", "standalone")
        }
        seconds = _seconds(ways, repeats, device)
        steps[trained] = {"seconds": seconds, "share_of_relations": _shares(seconds)}
        if device.type == "cuda":
            computing = {name: _computing_seconds(step) for name, step in ways.items()}
            steps[trained] |= {"computing_seconds": computing, "share_of_computing": _shares(computing)}
    return {"batch": batch, "fragments": FRAGMENTS, "words": WORDS, "repeats": repeats, "steps": steps}


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    """The share of a step that each mechanism adds to the base."""
    return {name: round(1 - seconds["base"] / seconds[name], 4) for name in ("fusion", "standalone")}


def _seconds(ways: dict[str, Callable[[], None]], repeats: int, device: torch.device) -> dict[str, float]:
    """Median of the seconds of a step, which encodes, relates, goes back and moves the weights, of ways in turns.

    In turns, because a step waits for the processor, which others may share.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + min(repeats, 5)):
        for name, step in ways.items():
            began = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[name].append(time.perf_counter() - began)
    return {name: round(median(taken[-repeats:]), 5) for name, taken in times.items()}


def _computing_seconds(step: Callable[[], None]) -> float:
    """Seconds of a step that the kernels and copies of a GPU take, added up."""
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        step()
        torch.cuda.synchronize()
    events = [event for event in watched.key_averages() if event.device_type.name == "CUDA"]
    microseconds: float = sum(event.self_device_time_total for event in events if not event.is_user_annotation)
    return round(microseconds / 1e6, 5)


def _step_of(recipe: Recipe, batch: int, device: torch.device) -> Callable[[], None]:
    """Make a training step of a recipe's model with the relation loss, or the embedding's where it has no other."""
    torch.manual_seed(0)
    model, _ = make_model(recipe, None, [])
    model.to(device)
    objective: Any = make_objectives(recipe, model)["relation" if "relation" in recipe.objectives else "embed"]
    objective.to(device)
    optimizer = make_optimizer(recipe.optimizer, model, [objective])
    return _step(model.train(), objective, optimizer, recipe.optimizer.clip, batch, device)


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
    size = require_pixels(model.preprocess).size
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
