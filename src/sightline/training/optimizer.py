"""AdamW over the parts of a model, each at its own rate."""

from collections.abc import Iterable

import torch
from torch import nn

from sightline.errors import RecipeError
from sightline.models import towers
from sightline.models.retriever import Retriever
from sightline.training.recipe import nearest
from sightline.training.tables import OptimizerRecipe

HEADS, OBJECTIVES = "heads", "objectives"


def parts_of(model: Retriever) -> dict[str, list[nn.Parameter]]:
    """Sort the parameters of a model: its encoders by name, and `heads` for the rest. None is in two parts."""
    parts: dict[str, list[nn.Parameter]] = {}
    taken: set[int] = set()
    for name, encoder in model.parts().items():
        parts[name] = [p for p in encoder.parameters() if id(p) not in taken]
        taken |= {id(p) for p in parts[name]}
    parts[HEADS] = [p for p in model.parameters() if id(p) not in taken]
    return parts


def make_optimizer(recipe: OptimizerRecipe, model: Retriever, objectives: Iterable[nn.Module]) -> torch.optim.AdamW:
    """Set dropout, freeze the parts whose rate is zero, and make an optimiser of the others.

    Vectors (biases, norms, temperatures) do not decay. What is frozen already (a temperature that is not learned)
    stays frozen at any rate. On a GPU the steps of all parameters of a group are one computation.
    """
    parts = parts_of(model)
    parts[OBJECTIVES] = [p for objective in objectives for p in objective.parameters()]
    for name in recipe.rates:
        if name not in parts:
            raise RecipeError(f'optimizer.rates: this model has no part "{name}"', nearest(name, parts))
    for name, count in recipe.frozen_layers.items():
        for parameter in towers.before(_encoder(model, name, "frozen_layers"), count):
            parameter.requires_grad_(False)
    for name, share in recipe.dropout.items():
        places = [m for m in _encoder(model, name, "dropout").modules() if isinstance(m, nn.Dropout)]
        if not places:
            raise RecipeError(f'optimizer.dropout: the encoder "{name}" has no place for it')
        for place in places:
            place.p = share
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
    fused = all(parameter.is_cuda for parameters in parts.values() for parameter in parameters)
    return torch.optim.AdamW(groups, betas=recipe.betas, fused=fused or None)


def _encoder(model: Retriever, name: str, setting: str) -> nn.Module:
    encoders = model.parts()
    if name not in encoders:
        raise RecipeError(f'optimizer.{setting}: this model has no encoder "{name}"', nearest(name, encoders))
    return encoders[name]
