"""Checkpoints of published models that were trained further: CLIP, SigLIP, and pairs of encoders.

model/      the model, as transformers saves and loads it
retriever.json, tokenizer.json      as in other checkpoints; see `checkpoint`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from sightline import settings
from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import ModelError
from sightline.media import Preprocess
from sightline.models.pretrained_model import read_model
from sightline.models.pretrained_towers import NaFlexTowers, SiglipTowers, TwoTowers
from sightline.models.retriever import TextInput

KIND = "published"
_CLASSES: dict[str, type[TwoTowers]] = {kind.__name__: kind for kind in (TwoTowers, SiglipTowers, NaFlexTowers)}
_MODELS = ("CLIPModel", "SiglipModel", "Siglip2Model", "VisionTextDualEncoderModel")
_FOLDER = "model"


@dataclass(frozen=True, slots=True)
class PublishedConfig:
    """The description of a published model: its class here and in transformers, and the inputs that it reads."""

    towers: str
    model: str
    preprocess: Preprocess
    text_input: TextInput
    embedding_dim: int


def save(retriever: TwoTowers, folder: Path) -> dict[str, Any]:
    """Write the model to a folder; returns its configuration, for the checkpoint's description."""
    retriever.model.save_pretrained(folder / _FOLDER)
    config = PublishedConfig(
        type(retriever).__name__,
        type(retriever.model).__name__,
        retriever.pixels,
        retriever.text_input,
        retriever.embedding_dim,
    )
    return dict(settings.plain(config))


def load(folder: Path, description: Mapping[str, Any]) -> tuple[TwoTowers, Tokenizer]:
    """Read a checkpoint, given its description."""
    config = settings.parse(PublishedConfig, description.get("config"), str(folder), ModelError)
    if config.towers not in _CLASSES or config.model not in _MODELS:
        raise ModelError(f"{folder}: unknown model type: {config.towers} of {config.model}", "Update Sightline.")
    model = read_model(getattr(transformers, config.model), folder / _FOLDER)
    pad_id = int(description["pad_id"])
    towers = _CLASSES[config.towers](model, config.preprocess, config.text_input, config.embedding_dim, pad_id)
    towers.trained = frozenset(description.get("trained", towers.has))
    return towers, Tokenizer.open(folder / "tokenizer.json", config.text_input.max_length, pad_id)
