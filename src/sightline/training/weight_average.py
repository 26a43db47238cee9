"""Averaging weights: over the last part of training, and between a fine-tuned encoder and its initial weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.retriever import Retriever
from sightline.models.towers import TowerConfig
from sightline.training.state import saved_tensors
from sightline.training.tables import AverageRecipe

PREFIX = "average/"
"""The prefix of the means in the saved state; the name of the parameter follows."""
START = "start/"
"""The prefix of the initial weights in the saved state; the name of the parameter follows."""


class WeightAverage:
    """The mean of a model's trained weights from a given step on.

    "uniform": all steps weigh the same (Izmailov et al. 2018, stochastic weight averaging). "exponential": recent steps
    weigh more, each step `decay` times as much as the one after it; starts as a uniform mean. "last": the weights
    themselves. Each is then averaged with the initial weights, if the recipe says so (WiSE-FT).
    """

    def __init__(self, recipe: AverageRecipe, model: nn.Module, steps: int) -> None:
        self._recipe = recipe
        self._begin = round(recipe.begin * steps)
        self._weights = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._means: dict[str, Tensor] = {}
        self._start: dict[str, Tensor] = {}
        if recipe.with_start:
            self._start = {name: value.detach().clone() for name, value in self._weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the current weights to the mean, after step number `step`, counted from 0."""
        if step < self._begin or self._recipe.kind == "last":
            self._means = {}  # an extended run may already have some
            return
        if not self._means:
            self._means = {name: value.detach().clone() for name, value in self._weights.items()}
            return
        share = 1 / (step - self._begin + 1)
        if self._recipe.kind == "exponential":
            share = max(share, 1 - self._recipe.decay)
        torch._foreach_lerp_(list(self._means.values()), [self._weights[name] for name in self._means], share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the means as weights within a `with` block; no effect before the first update."""
        trained = {name: value.detach().clone() for name, value in self._weights.items()}
        try:
            self._put(self._means)
            for name, start in self._start.items():
                self._weights[name].data.lerp_(start, self._recipe.with_start)
            yield
        finally:
            self._put(trained)

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._weights[name].copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save with the state of a run."""
        means = {f"{PREFIX}{name}": value for name, value in self._means.items()}
        return means | {f"{START}{name}": value for name, value in self._start.items()}

    def restore(self, saved: Path) -> None:
        """Restore the means from a saved state."""
        found = saved_tensors(saved, PREFIX)
        self._means = {name: found[name].to(value.device) for name, value in self._weights.items() if name in found}
        started = saved_tensors(saved, START)
        self._start = {name: started[name].to(value.device) for name, value in self._weights.items() if name in started}


@torch.no_grad()
def blend(model: Retriever, part: str, source: str, share: float) -> None:
    """Set the encoder `part` of a model to share x its weights + (1 - share) x those of `source`, a folder or hub name.

    The projection of `source`, if the model started with it, is not changed: it belongs to the heads.
    """
    if not 0 <= share <= 1:
        raise ModelError(
            f"blend.share cannot be {share}", "Use a fraction from 0 (only the source) to 1 (only the model itself)."
        )
    if part not in model.parts():
        raise ModelError(f"this model has no part {part!r}", f"Choose one of {', '.join(model.parts())}.")
    trained = dict(model.parts()[part].named_parameters())
    original, _ = towers.build(TowerConfig(source), "vision" if part == "image" else "text")
    found = dict(original.named_parameters())
    if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in trained.items()}:
        raise ModelError(f"{source}: its weights do not fit this model's {part} encoder")
    for name, parameter in trained.items():
        parameter.lerp_(found[name].to(parameter.device), 1 - share)
