"""Checkpoints: a folder with one subfolder per encoder in the transformers layout, and a few small files.

retriever.json      kind of model, its configuration, and the abilities that were trained
image/, text/, …    one folder per encoder, as transformers saves and loads it
heads.safetensors   the weights outside the encoders
tokenizer.json      the tokenizer

For a published model that was trained further, see `published_checkpoint`.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from sightline import settings
from sightline.bundle.layout import BEST_FOLDER, CHECKPOINT_FILE, SPEC_FILE
from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import ModelError
from sightline.models import published_checkpoint
from sightline.models.dual_config import DualStreamConfig
from sightline.models.dual_stream import DualStream
from sightline.models.pretrained_towers import TwoTowers
from sightline.models.single_stream import SingleStream, SingleStreamConfig
from sightline.models.towers import TowerConfig, backend_of

FORMAT = 1
Config: TypeAlias = DualStreamConfig | SingleStreamConfig
AnyRetriever: TypeAlias = DualStream | SingleStream | TwoTowers

KINDS: dict[str, tuple[type[DualStream] | type[SingleStream], type[Config]]] = {
    "dual_stream": (DualStream, DualStreamConfig),
    "single_stream": (SingleStream, SingleStreamConfig),
}
_MATCHER_HEADS = ("image_states.", "match_score.", "aligned.", "matcher_text.", "matcher_image.")
_TOWER_OF_PART = {
    "image": "image",
    "image_reader": "image_reader",
    "text": "text",
    "matcher": "matcher_tower",
    "transformer": "transformer",
}


def build(config: Config) -> DualStream | SingleStream:
    """Build a retriever from its configuration."""
    return DualStream(config) if isinstance(config, DualStreamConfig) else SingleStream(config)


def save(retriever: AnyRetriever, tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write a checkpoint to `folder`, creating it if needed."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    if isinstance(retriever, TwoTowers):
        kind, config = published_checkpoint.KIND, published_checkpoint.save(retriever, folder)
    else:
        kind = next(name for name, (model, _) in KINDS.items() if type(retriever) is model)
        config = _save_parts(retriever, folder)
    description = {"format": FORMAT, "kind": kind, "pad_id": tokenizer.pad_id, "config": config}
    if retriever.trained is not None:
        description["trained"] = sorted(retriever.trained)
    (folder / CHECKPOINT_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _save_parts(retriever: DualStream | SingleStream, folder: Path) -> dict[str, Any]:
    """Write the encoders and heads of a model; returns its configuration, with each encoder given by its folder."""
    parts = retriever.parts()
    inside = {id(tensor) for part in parts.values() for tensor in (*part.parameters(), *part.buffers())}
    for name, part in parts.items():
        part.save_pretrained(folder / name)  # type: ignore[operator]
    named = [*retriever.named_parameters(remove_duplicate=False), *retriever.named_buffers(remove_duplicate=False)]
    stored_names = retriever.state_dict().keys()  # without buffers that are recomputed
    heads = {
        name: tensor.detach().contiguous()
        for name, tensor in named
        if id(tensor) not in inside and name in stored_names
    }
    save_file(heads, folder / "heads.safetensors")
    towers: dict[str, Any] = {_TOWER_OF_PART[name]: TowerConfig(source=name) for name in parts}
    return dict(settings.plain(dataclasses.replace(retriever.config, **towers)))


def load(folder: str | Path, add: Mapping[str, Any] | None = None) -> tuple[AnyRetriever, Tokenizer]:
    """Read a checkpoint written by `save`.

    add: settings of a new matcher for a two-tower model that has none (`matcher`, `matcher_layers`, …).
    """
    folder = Path(folder)
    path = folder / CHECKPOINT_FILE
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _not_one(folder) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    kinds = (*KINDS, published_checkpoint.KIND)
    if not isinstance(description, dict) or description.get("format") != FORMAT or description.get("kind") not in kinds:
        raise ModelError(f"{path}: not a checkpoint in format {FORMAT}", "Update Sightline, or train the model again.")
    if description["kind"] == published_checkpoint.KIND:
        if add:
            raise ModelError(f"{folder}: nothing can be added to a published model", "Leave out model.add.")
        return published_checkpoint.load(folder, description)
    model, shape = KINDS[description["kind"]]
    if add:
        _check_added(add, description, path)
    config = settings.parse(shape, {**description["config"], **(add or {})}, str(path), ModelError)
    located = {
        field: dataclasses.replace(tower, source=str(folder / tower.source))
        for field in _TOWER_OF_PART.values()
        if (tower := getattr(config, field, None)) is not None and field not in (add or {})
    }
    retriever = model(dataclasses.replace(config, **located))  # type: ignore[arg-type]
    _load_heads(retriever, folder / "heads.safetensors", _MATCHER_HEADS if add else ())
    if add and isinstance(retriever, DualStream):
        retriever.align()
    if "trained" in description:
        retriever.trained = frozenset(description["trained"])
    elif add:
        retriever.trained = frozenset({"embed", "fragments"})
    tokenizer = Tokenizer.open(folder / "tokenizer.json", config.text_input.max_length, int(description["pad_id"]))
    return retriever, tokenizer


def _not_one(folder: Path) -> ModelError:
    """Return the error for a folder that is not a checkpoint; suggests the folder that was probably meant."""
    if not folder.is_dir():
        return ModelError(f"{folder}: no such folder", "Use the folder of a checkpoint, such as runs/NAME/best.")
    best = folder / BEST_FOLDER
    if (best / CHECKPOINT_FILE).is_file():
        return ModelError(f"{folder}: a training run, not a checkpoint", f"Use its best checkpoint: {best}")
    if (folder / SPEC_FILE).is_file():
        return ModelError(
            f"{folder}: a bundle, not a checkpoint",
            "A bundle can only search; use the checkpoint that it was exported from.",
        )
    return ModelError(
        f"{folder}: not a checkpoint: it has no {CHECKPOINT_FILE}", "Use the folder of one, such as runs/NAME/best."
    )


def _check_added(add: Mapping[str, Any], description: Mapping[str, Any], path: Path) -> None:
    """Reject adding anything but a matcher, or adding a second one."""
    if unknown := [key for key in add if not key.startswith("matcher")]:
        raise ModelError(f"{path}: {', '.join(unknown)} cannot be added to a checkpoint; only a matcher can")
    if description["kind"] != "dual_stream" or description["config"].get("matcher", "shared") != "none":
        raise ModelError(f"{path}: this model already has a matcher", "Leave out model.add.")


def _load_heads(retriever: torch.nn.Module, path: Path, new: tuple[str, ...] = ()) -> None:
    """Load the weights outside the encoders; only heads whose names start with one of `new` may be missing."""
    try:
        heads = load_file(path)
    except Exception as error:  # the library's own exception if damaged, OSError if missing
        raise ModelError(f"{path}: cannot be read: {error}") from error
    inside = {id(tensor) for part in retriever.parts().values() for tensor in part.parameters()}  # type: ignore[operator]
    wanted = {name for name, tensor in retriever.named_parameters() if id(tensor) not in inside}
    wanted -= {name for name in wanted if new and name.startswith(new)}
    if wanted != heads.keys():
        lacking, surplus = sorted(wanted - heads.keys()), sorted(heads.keys() - wanted)
        raise ModelError(
            f"{path}: does not fit the model (missing weights: {lacking or 'none'}; unknown: {surplus or 'none'})"
        )
    retriever.load_state_dict(heads, strict=False)


def tokenizer_of(tower: TowerConfig, max_length: int) -> Tokenizer:
    """Return the tokenizer that belongs to a text encoder given by folder or hub name."""
    try:
        found = AutoTokenizer.from_pretrained(tower.source)
    except (OSError, ValueError) as error:
        raise ModelError(f"{tower.source}: cannot load a tokenizer from it: {error}") from error
    return Tokenizer(backend_of(found, tower.source), max_length, found.pad_token_id or 0)
