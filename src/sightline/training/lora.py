"""Low-rank adapters on a model's encoders, using peft."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.close_names import did_you_mean
from sightline.errors import RecipeError, SightlineError
from sightline.models.retriever import Retriever
from sightline.packages import install_extra
from sightline.training.state import saved_tensors
from sightline.training.tables import LoraRecipe

PREFIX = "lora/"
"""The prefix of adapter parameters' names in the saved state."""


class Adapters:
    """The adapters of a model. An encoder with adapters has its own weights frozen."""

    def __init__(self, recipe: LoraRecipe, model: Retriever) -> None:
        try:
            from peft import LoraConfig, inject_adapter_in_model
            from peft.tuners.lora import Linear
        except ImportError as error:
            raise SightlineError(f"LoRA needs peft: {error}", install_extra("lora")) from error
        encoders = model.parts()
        for name in recipe.encoders:
            if name not in encoders:
                raise RecipeError(f'lora.encoders: this model has no encoder "{name}"', did_you_mean(name, encoders))
        self._model = model
        self._places: list[tuple[nn.Module, str, Any]] = []
        for name in recipe.encoders or encoders:
            encoder = encoders[name]
            chosen = [
                place
                for place, module in encoder.named_modules()
                if isinstance(module, nn.Linear) and re.fullmatch(recipe.layers, place)
            ]
            if not chosen:
                raise RecipeError(f'lora.layers: no linear layer in the encoder "{name}" matches {recipe.layers}')
            encoder.requires_grad_(False)
            config = LoraConfig(
                r=recipe.rank, lora_alpha=recipe.alpha, lora_dropout=recipe.dropout, target_modules=chosen
            )
            inject_adapter_in_model(config, encoder)
            self._places += [
                (parent, child, module)
                for parent in encoder.modules()
                for child, module in parent.named_children()
                if isinstance(module, Linear)
            ]

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save with the state of a run."""
        return {f"{PREFIX}{name}": value.detach().clone() for name, value in self._parameters().items()}

    @torch.no_grad()
    def restore(self, saved: Path) -> None:
        """Restore the adapters from a saved state."""
        found = saved_tensors(saved, PREFIX)
        for name, value in self._parameters().items():
            value.copy_(found[name])

    def _parameters(self) -> dict[str, Tensor]:
        return {name: value for name, value in self._model.named_parameters() if ".lora_" in name}

    @contextmanager
    def taken_off(self, *, merged: bool) -> Iterator[None]:
        """Remove the adapters within a `with` block; if `merged`, they are merged into the weights meanwhile."""
        own = [module.base_layer for _, _, module in self._places]
        weights = [layer.weight for layer in own]
        try:
            for (parent, child, module), layer in zip(self._places, own, strict=True):
                if merged:
                    layer.weight = nn.Parameter(layer.weight + module.get_delta_weight("default"), requires_grad=False)
                setattr(parent, child, layer)
            yield
        finally:
            for (parent, child, module), layer, weight in zip(self._places, own, weights, strict=True):
                layer.weight = weight
                setattr(parent, child, module)
