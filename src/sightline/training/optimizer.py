"""AdamW with a learning rate for each part of a model."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sightline.close_names import did_you_mean
from sightline.errors import RecipeError
from sightline.models import towers
from sightline.models.retriever import Retriever
from sightline.training.modes import compile_layers
from sightline.training.tables import OptimizerRecipe

HEADS, LOSSES = "heads", "losses"


def parts_of(model: Retriever, named: Iterable[str] = ()) -> dict[str, list[nn.Parameter]]:
    """Group the parameters of a model: its encoders by name, and `heads` for the rest. Groups are disjoint.

    named: heads that form groups of their own, such as image_embedding.
    """
    parts: dict[str, list[nn.Parameter]] = {}
    taken: set[int] = set()
    encoders = model.parts()
    heads = {name: head for name, head in model.named_children() if name in named and name not in encoders}
    for name, part in (encoders | heads).items():
        parts[name] = [p for p in part.parameters() if id(p) not in taken]
        taken |= {id(p) for p in parts[name]}
    parts[HEADS] = [p for p in model.parameters() if id(p) not in taken]
    return parts


def make_optimizer(recipe: OptimizerRecipe, model: Retriever, losses: Iterable[nn.Module]) -> torch.optim.AdamW:
    """Set dropout, freeze the parts whose learning rate is zero, and make an optimiser for the others.

    With `compile`, the layers of the encoders that are not frozen are compiled.

    Vectors (biases, norms, temperatures) have no weight decay. Parameters that are already frozen (a fixed temperature)
    stay frozen whatever their learning rate. On a GPU, the update of all parameters of a group is fused.
    """
    parts = parts_of(model, recipe.rates)
    parts[LOSSES] = [p for loss in losses for p in loss.parameters()]
    for name in recipe.rates:
        if name not in parts:
            raise RecipeError(f'optimizer.rates: this model has no part "{name}"', did_you_mean(name, parts))
    for name, count in recipe.frozen_layers.items():
        for parameter in towers.before(_encoder(model, name, "frozen_layers"), count):
            parameter.requires_grad_(False)
    for name in recipe.layer_decay:
        _encoder(model, name, "layer_decay")
    for name, share in recipe.dropout.items():
        places = [m for m in _encoder(model, name, "dropout").modules() if isinstance(m, nn.Dropout)]
        if not places:
            raise RecipeError(f'optimizer.dropout: the encoder "{name}" has no dropout setting')
        for place in places:
            place.p = share
    groups = []
    for name, parameters in parts.items():
        rate = recipe.rates.get(name, recipe.lr)
        if rate == 0:
            for parameter in parameters:
                parameter.requires_grad_(False)
        factors = _factors(recipe, model, name, parameters)
        for factor in sorted(set(factors), reverse=True):
            for decays in (True, False):
                chosen = [
                    parameter
                    for parameter, own in zip(parameters, factors, strict=True)
                    if own == factor and parameter.requires_grad and (parameter.ndim > 1) == decays
                ]
                if chosen:
                    decay = recipe.weight_decay if decays and name != LOSSES else 0.0
                    own_rate = rate * factor
                    group = {"params": chosen, "lr": own_rate, "initial_lr": own_rate, "weight_decay": decay}
                    groups.append({**group, "name": name})
    if not groups:
        raise RecipeError("optimizer: every part is frozen: there is nothing to train")
    if recipe.compile:
        compile_layers(model)
    fused = all(parameter.is_cuda for parameters in parts.values() for parameter in parameters)
    return torch.optim.AdamW(groups, betas=recipe.betas, fused=fused or None)


def clip_gradients(optimizer: torch.optim.Optimizer, most: float) -> Tensor | None:
    """Scale all gradients down so that their norm is at most `most`; returns the norm before that. 0 does nothing."""
    if not most:
        return None
    return nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], most)


def _factors(recipe: OptimizerRecipe, model: Retriever, name: str, parameters: list[nn.Parameter]) -> list[float]:
    """Return each parameter's learning-rate multiplier: lower for layers further from the output."""
    decay = recipe.layer_decay.get(name, 1.0)
    if decay == 1:
        return [1.0] * len(parameters)
    above = towers.heights(model.parts()[name])
    return [decay ** above[id(parameter)] for parameter in parameters]


def _encoder(model: Retriever, name: str, setting: str) -> nn.Module:
    encoders = model.parts()
    if name not in encoders:
        raise RecipeError(f'optimizer.{setting}: this model has no encoder "{name}"', did_you_mean(name, encoders))
    return encoders[name]
