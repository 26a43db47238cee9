"""Opening published models, from folders in their authors' layout, as retrievers with the abilities they have."""

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

from sightline.bundle.layout import OPEN_CLIP_FILE, PUBLISHED_FILE
from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import ModelError
from sightline.models import open_clip
from sightline.models import pretrained_inputs as inputs
from sightline.models.pretrained_matchers import Blip, Vilt
from sightline.models.pretrained_model import Pretrained, read_model
from sightline.models.pretrained_regions import is_region_checkpoint, region_matcher
from sightline.models.pretrained_towers import NaFlexTowers, SiglipTowers, TwoTowers
from sightline.models.retriever import TextInput
from sightline.models.text_tower import first_position

Opened = tuple[Pretrained, Tokenizer]


def load(folder: str | Path) -> Opened:
    """Open a published model: CLIP, SigLIP, SigLIP 2, BLIP, ViLT, a VisionTextDualEncoder, Oscar or UNITER.

    The folder has the layout of the model's authors, as on the hub: config.json, the weights, the tokenizer and, for
    models that read pixels, preprocessor_config.json; or open_clip's, with open_clip_config.json. Unknown or
    incomplete models are rejected.
    """
    folder = Path(folder)
    if (folder / OPEN_CLIP_FILE).is_file() and not (folder / PUBLISHED_FILE).is_file():
        return _open_clip(folder)
    config = _config(folder)
    kind = config.get("model_type")
    if kind in _FAMILIES:
        return _FAMILIES[kind](folder)
    weights = _weights(folder) if kind in (None, "bert") else {}
    if is_region_checkpoint(weights):
        model = region_matcher(folder, config, weights)
        return model, inputs.tokenizer_of(folder, model.text_input.max_length)
    raise ModelError(
        f"{folder}: {kind or 'a model of unknown type'} is not a supported image-text model",
        f"Use one of {', '.join(sorted(_FAMILIES))}, Oscar or UNITER; or train a pair of encoders of your own, with "
        "this one as model.image.source or model.text.source of a recipe.",
    )


def _config(folder: Path, name: str = PUBLISHED_FILE) -> dict[str, Any]:
    path = folder / name
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: not a model configuration")
    return found


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the state dict in a folder: model.safetensors, pytorch_model.bin or the only .pt file; else empty."""
    usual = (f"{before}{name}" for name in ("model.safetensors", "pytorch_model.bin") for before in ("", "open_clip_"))
    path = next(
        (path for path in (*(folder / name for name in usual), *sorted(folder.glob("*.pt"))) if path.is_file()), None
    )
    if path is None:
        return {}
    try:
        found = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    found = dict(found).get("state_dict", found)  # a checkpoint of open_clip's training
    return {name.removeprefix("module."): value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _two_towers(kind: str, folder: Path) -> Opened:
    model = read_model(getattr(transformers, kind), folder)
    text = model.config.text_config
    tokenizer = inputs.tokenizer_of(folder, text.max_position_embeddings - first_position(text))
    reads = TextInput(tokenizer.max_length)
    dim = int(model.config.projection_dim)
    return TwoTowers(model, inputs.preprocess_of(folder), reads, dim, tokenizer.pad_id), tokenizer


def _open_clip(folder: Path) -> Opened:
    config = _config(folder, OPEN_CLIP_FILE)
    model = open_clip.convert(folder, config, _weights(folder))
    tokenizer = inputs.tokenizer_of(folder, model.config.text_config.max_position_embeddings)
    dim = int(model.config.projection_dim)
    preprocess = open_clip.preprocess_of(config)
    return TwoTowers(model, preprocess, TextInput(tokenizer.max_length), dim, tokenizer.pad_id), tokenizer


def _siglip(kind: str, folder: Path) -> Opened:
    model = read_model(getattr(transformers, kind), folder)
    text = model.config.text_config
    tokenizer = inputs.siglip_tokenizer_of(folder, text.max_position_embeddings)
    languages = ("en",) if inputs.is_first_siglip(folder) else ("mul",)
    reads = TextInput(text.max_position_embeddings, languages)
    dim = int(getattr(text, "projection_size", None) or text.hidden_size)
    if kind == "SiglipModel":
        return SiglipTowers(model, inputs.preprocess_of(folder), reads, dim, tokenizer.pad_id), tokenizer
    square = inputs.square_of_patches(folder)
    return NaFlexTowers(model, inputs.preprocess_of(folder, square), reads, dim, tokenizer.pad_id), tokenizer


def _blip(folder: Path) -> Opened:
    model = read_model(transformers.BlipForImageTextRetrieval, folder)
    tokenizer = inputs.tokenizer_of(folder, model.config.text_config.max_position_embeddings)
    reads = TextInput(tokenizer.max_length)
    return Blip(model, inputs.preprocess_of(folder), reads, int(model.config.image_text_hidden_size)), tokenizer


def _vilt(folder: Path) -> Opened:
    model = read_model(transformers.ViltForImageAndTextRetrieval, folder)
    tokenizer = inputs.tokenizer_of(folder, model.config.max_position_embeddings)
    preprocess = inputs.preprocess_of(folder, int(model.config.image_size))
    return Vilt(model, preprocess, TextInput(tokenizer.max_length)), tokenizer


_FAMILIES: dict[str, Callable[[Path], Opened]] = {
    "blip": _blip,
    "clip": partial(_two_towers, "CLIPModel"),
    "siglip": partial(_siglip, "SiglipModel"),
    "siglip2": partial(_siglip, "Siglip2Model"),
    "vilt": _vilt,
    "vision-text-dual-encoder": partial(_two_towers, "VisionTextDualEncoderModel"),
}
