"""Encoders of the transformers library as towers: loaded by config, folder or hub name, and optionally shortened."""

import copy
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import cached_file

from sightline.close_names import closest
from sightline.errors import ModelError
from sightline.models.bigru import BiGru, BiGruConfig
from sightline.plugins import register_encoder

Projection = Tensor | None
UNREADABLE = (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError)
"""The exceptions that transformers raises for a model that is missing, of another kind, or damaged."""

_NEW_WEIGHTS = 0.03  # standard deviation

# Silence transformers while loading: missing weights are reported here, and its progress bars are too short-lived.
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

AutoConfig.register(BiGruConfig.model_type, BiGruConfig)
AutoModel.register(BiGruConfig, BiGru)


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """The encoder of a tower.

    source: a folder in the transformers layout or a hub name, with weights.
    config: instead of `source`, a transformers configuration, for random weights. Its `model_type` is a name that
    transformers knows, or the Python path of an encoder of your own, `my_module:MyEncoder`.
    layer_step: 2 keeps every second layer (paper 1, section 6: "skip every odd-numbered Transformer layer").
    layers: keep only this many layers, from the first; 0 keeps all. The lower layers of CLIP's image tower are less
    adapted to texts.
    """

    source: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    layer_step: int = 1
    layers: int = 0

    def __post_init__(self) -> None:
        if bool(self.source) == bool(self.config):
            raise ModelError(
                "a tower needs either a source (folder or hub name) or a config, not both",
                "To replace one with the other, set the whole table: --set 'model.text={source=\"NAME\"}'",
            )
        if self.layer_step < 1:
            raise ModelError(f"layer_step cannot be {self.layer_step}; it must be at least 1 (every layer)")
        if self.layers < 0:
            raise ModelError(f"layers cannot be {self.layers}", "Use a number of layers, or 0 for all.")


def build(tower: TowerConfig, part: str) -> tuple[PreTrainedModel, Projection]:
    """Make the encoder of a tower, and read the projection in its checkpoint, if any.

    `part` ("vision" or "text") selects one half of a two-tower checkpoint such as CLIP's. Only the weights of an unused
    pooling layer may be missing: other missing weights would be random, so they raise an error that names them.
    """
    if tower.config:
        return shorten(_without_pooler(_new(tower.config)), tower.layer_step, tower.layers), None
    check_exists(tower.source)
    try:
        config = AutoConfig.from_pretrained(tower.source)
        config = getattr(config, f"{part}_config", config)
        model, report = AutoModel.from_pretrained(
            tower.source, config=config, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except UNREADABLE as error:
        raise ModelError(
            f"{tower.source}: cannot load a model from it: {error}",
            "Use a folder with config.json and model.safetensors, or the name of a model on the hub.",
        ) from error
    found_wanting = [key for key in lacking(report) if not key.startswith("pooler.")]
    check_whole(tower.source, type(model).__name__, found_wanting)
    name = {"vision": "visual_projection.weight", "text": "text_projection.weight"}[part]
    projection = None if tower.layers else _stored_tensor(tower.source, name)  # the projection is for the last layer
    return shorten(_without_pooler(model), tower.layer_step, tower.layers), projection


def _new(config: Mapping[str, Any]) -> PreTrainedModel:
    """Make an encoder with random weights."""
    settings = dict(config)
    kind = settings.pop("model_type", None)
    if kind is None:
        raise ModelError("a tower's config has no model_type", 'Add one, for example model_type = "bert".')
    if ":" in str(kind):
        kind = register_encoder(str(kind)).config_class.model_type
    if kind not in CONFIG_MAPPING:
        near = closest(str(kind), CONFIG_MAPPING.keys())
        way_out = f'Did you mean "{near}"?' if near else "Names are those of transformers, such as bert or vit."
        raise ModelError(f'model_type = "{kind}": there is no such encoder', way_out)
    try:
        _check_known(kind, settings, AutoConfig.for_model(kind))
        return AutoModel.from_config(AutoConfig.for_model(kind, **settings))
    except ModelError:
        raise
    except Exception as error:  # contradictory settings raise arbitrary exceptions
        raise ModelError(
            f'model_type = "{kind}": cannot build an encoder from its config: {error.__cause__ or error}'
        ) from error


def _check_known(kind: str, settings: Mapping[str, Any], usual: PretrainedConfig) -> None:
    """Reject settings that an encoder does not have: transformers silently accepts misspelt ones."""
    for key in settings:
        if not hasattr(usual, key):
            near = closest(key, usual.to_dict())
            raise ModelError(
                f'model_type = "{kind}": its config has no setting "{key}"',
                f'Did you mean "{near}"?' if near else "Leave it out.",
            )


def check_exists(source: str) -> None:
    """Reject a missing folder, which transformers would mistake for a hub name."""
    if (source.startswith((".", "/", "~")) or source.count("/") > 1) and not Path(source).is_dir():
        raise ModelError(f"{source}: no such folder", "Use a folder, or the name of a model on the hub.")


def lacking(report: Mapping[str, Any]) -> list[str]:
    """Return the weights of a transformers model that are missing from its checkpoint, or have another shape there.

    report: the loading info from `output_loading_info` and `ignore_mismatched_sizes`.
    """
    others = (f"{key} {list(wanted)} (it has {list(found)})" for key, found, wanted in report["mismatched_keys"])
    return [*report["missing_keys"], *others]


def check_whole(source: str, model: str, lacking: Iterable[str]) -> None:
    """Reject a checkpoint that lacks weights of a model: they would be random."""
    if names := sorted(lacking):
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise ModelError(f"{source}: the checkpoint lacks weights for {model}: {shown}")


def _without_pooler(model: PreTrainedModel) -> PreTrainedModel:
    """Drop a pooling layer with weights, such as BERT's: Sightline pools embeddings itself."""
    pooler = getattr(model, "pooler", None)
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        model.pooler = None
    return model


def shorten(model: PreTrainedModel, step: int, first: int = 0) -> PreTrainedModel:
    """Keep layers 0, step, 2 * step, … of the first `first` layers (0: of all), in the model and in its config."""
    if step == 1 and not first:
        return model
    parent, name = _stack(model)
    stack = list(getattr(parent, name))
    if first > len(stack):
        raise ModelError(f"the first {first} layers were requested, but {type(model).__name__} has {len(stack)}")
    kept = nn.ModuleList(stack[: first or None][::step])
    setattr(parent, name, kept)
    model.config.num_hidden_layers = len(kept)
    return model


def copied_layers(model: PreTrainedModel, first: int, count: int) -> PreTrainedModel:
    """Copy `count` layers of an encoder from layer `first` on, counted from 0, without its word vectors."""
    stack = layers(model)
    if not 0 < count <= len(stack) - first:
        raise ModelError(
            f"{count} layers after layer {first} were requested, but {type(model).__name__} has {len(stack)}"
        )
    words = model.get_input_embeddings()
    model.set_input_embeddings(nn.Embedding(1, words.weight.shape[1]))
    copied = copy.deepcopy(model)
    model.set_input_embeddings(words)
    parent, name = _stack(copied)
    setattr(parent, name, nn.ModuleList(list(layers(copied))[first : first + count]))
    copied.config.num_hidden_layers = count
    copied.config.vocab_size = 1
    return copied


@torch.no_grad()
def reset(model: nn.Module) -> None:
    """Reinitialise the layers of an encoder with random weights."""
    for module in layers(model).modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=_NEW_WEIGHTS)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()


def last_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """Keep the last `count` layers of the encoder's stack, in the model and in its config."""
    parent, name = _stack(model)
    stack = list(getattr(parent, name))
    if not 0 < count <= len(stack):
        raise ModelError(f"the last {count} layers were requested, but {type(model).__name__} has {len(stack)}")
    setattr(parent, name, nn.ModuleList(stack[-count:]))
    model.config.num_hidden_layers = count
    return model


def layers(model: nn.Module) -> nn.ModuleList:
    """Return the stack of an encoder's layers, first to last."""
    parent, name = _stack(model)
    return getattr(parent, name)  # type: ignore[no-any-return]


def before(model: nn.Module, layer: int) -> list[nn.Parameter]:
    """Return the parameters of an encoder before this layer, counted from 0: of its embeddings and the layers below."""
    stack = layers(model)
    if layer >= len(stack):
        raise ModelError(f"{type(model).__name__} has {len(stack)} layers, so there is none above layer {layer}")
    first = next(stack[layer].parameters())
    return list(takewhile(lambda parameter: parameter is not first, model.parameters()))


def heights(model: nn.Module) -> dict[int, int]:
    """Return the number of layers above each parameter of an encoder, by its id; 0 for the last layer and beyond.

    Embeddings count as the lowest layer.
    """
    stack = layers(model)
    below = {id(parameter): len(stack) for parameter in before(model, 0)}
    inside = {id(p): len(stack) - 1 - number for number, layer in enumerate(stack) for p in layer.parameters()}
    return {id(parameter): 0 for parameter in model.parameters()} | below | inside


def frozen_layers(model: nn.Module) -> int:
    """Return the number of leading layers of an encoder that are frozen, together with everything before them."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return len(layers(model))
    still = (not any(p.requires_grad for p in before(model, count)) for count in range(1, len(layers(model))))
    return sum(takewhile(bool, still))


def _stack(model: nn.Module) -> tuple[nn.Module, str]:
    """Find the module that holds the stack of layers, and the stack's name in it."""
    count = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                return module, name
    raise ModelError(f"{type(model).__name__} has no list of layers to select from")


def _stored_tensor(source: str, name: str) -> Projection:
    """Read one tensor of a checkpoint that the encoder class does not load."""
    folder = Path(source)
    path = (
        folder / "model.safetensors"
        if folder.is_dir()
        else cached_file(source, "model.safetensors", _raise_exceptions_for_missing_entries=False)
    )
    if path is None or not Path(path).is_file():
        return None
    with safe_open(str(path), framework="pt") as tensors:
        return tensors.get_tensor(name).float() if name in tensors.keys() else None  # noqa: SIM118


def backend_of(found: PreTrainedTokenizerBase, source: str) -> tokenizers.Tokenizer:
    """Return the fast tokenizer behind a transformers tokenizer that was opened from `source`.

    If the files of a tokenizer are missing, transformers returns one without a vocabulary; that is an error here.
    """
    backend: tokenizers.Tokenizer | None = getattr(found, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{source}: its tokenizer has no fast version (tokenizer.json), which Sightline needs")
    if not backend.get_vocab().keys() - set(found.all_special_tokens):
        raise ModelError(f"{source}: has no tokenizer", "Put the model's tokenizer.json beside its weights.")
    return backend
