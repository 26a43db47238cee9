"""AdamW over the parts of a model, each at its own rate, and the schedule of the rate."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from sightline.errors import RecipeError
from sightline.models.retriever import Retriever
from sightline.training.recipe import OptimizerRecipe, ScheduleRecipe, nearest

HEADS, OBJECTIVES = "heads", "objectives"


def parts_of(model: Retriever) -> dict[str, list[nn.Parameter]]:
    """The parameters of a model by part: its encoders by name, and `heads` for the rest. None is in two parts."""
    parts: dict[str, list[nn.Parameter]] = {}
    taken: set[int] = set()
    for name, encoder in model.parts().items():
        parts[name] = [p for p in encoder.parameters() if id(p) not in taken]
        taken |= {id(p) for p in parts[name]}
    parts[HEADS] = [p for p in model.parameters() if id(p) not in taken]
    return parts


def make_optimizer(recipe: OptimizerRecipe, model: Retriever, objectives: Iterable[nn.Module]) -> torch.optim.AdamW:
    """Freeze the parts whose rate is zero, and make an optimiser of the others.

    Vectors (biases, norms, temperatures) do not decay. What is frozen already (a temperature that is not learned)
    stays frozen at any rate.
    """
    parts = parts_of(model)
    parts[OBJECTIVES] = [p for objective in objectives for p in objective.parameters()]
    for name in recipe.rates:
        if name not in parts:
            raise RecipeError(f'optimizer.rates: this model has no part "{name}"', nearest(name, parts))
    groups = []
    for name, parameters in parts.items():
        rate = recipe.rates.get(name, recipe.lr)
        if rate == 0:
            for parameter in parameters:
                parameter.requires_grad_(False)
        for decays in (True, False):
            chosen = [p for p in parameters if p.requires_grad and (p.ndim > 1) == decays]
            if chosen:
                decay = recipe.weight_decay if decays and name != OBJECTIVES else 0.0
                groups.append({"params": chosen, "lr": rate, "initial_lr": rate, "weight_decay": decay, "name": name})
    if not groups:
        raise RecipeError("optimizer: every part is frozen: there is nothing to train")
    return torch.optim.AdamW(groups, betas=recipe.betas)


def rate_at(step: int, steps: int, schedule: ScheduleRecipe) -> float:
    """The share of its learning rate that a group has at `step` of `steps`."""
    warm = round(schedule.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if schedule.decay == "constant":
        return 1.0
    done = (step - warm) / max(1, steps - warm)
    return 1 - done if schedule.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
