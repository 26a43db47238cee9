"""The learning rates and losses of a step, according to a recipe's schedule."""

import math
import random

from sightline.training.recipe import Recipe
from sightline.training.tables import ScheduleRecipe

_APART = 10_000_019  # offset between the step seeds of adjacent recipe seeds; more than the steps of any run


def seed_at(step: int, recipe: Recipe) -> int:
    """Return the random seed of a step, the same in a resumed run."""
    return recipe.seed * _APART + step


def rate_at(step: int, steps: int, schedule: ScheduleRecipe) -> float:
    """Return the multiplier of all learning rates at `step` of `steps`."""
    warm = round(schedule.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if schedule.decay == "constant":
        return 1.0
    if schedule.decay == "drops":
        return float(0.1 ** sum(step >= round(share * steps) for share in schedule.drops))
    done = (step - warm) / max(1, steps - warm)
    return 1 - done if schedule.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def weights_at(step: int, recipe: Recipe) -> dict[str, float]:
    """Return the losses of a step by name, with their weights.

    A loss drawn at random in proportion to its weight has weight 1 in that step.
    """
    schedule, weights = recipe.schedule, recipe.weights
    if schedule.run == "together":
        return weights
    if schedule.run == "pattern":
        name = schedule.pattern[step % len(schedule.pattern)]
        return {name: weights[name]}
    (name,) = random.Random(seed_at(step, recipe)).choices(list(weights), list(weights.values()))
    return {name: 1.0}


def takes_part(name: str, step: int, steps: int, recipe: Recipe, source: str | None = None) -> bool:
    """Return whether a loss is active in `step` of `steps`, with a batch from `source`."""
    begin, end = recipe.spans[name]
    if source is not None and source not in recipe.sources[name]:
        return False
    return round(begin * steps) <= step < round(end * steps)
