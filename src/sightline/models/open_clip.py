"""Models of open_clip: CLIP with a plain ViT and a plain text transformer, converted to transformers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import CLIPConfig, CLIPModel

from sightline.bundle.layout import OPEN_CLIP_FILE
from sightline.errors import ModelError
from sightline.media import Preprocess
from sightline.models.towers import UNREADABLE

_OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
_OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
_RENAMED = (
    (r"^visual\.class_embedding$", "vision_model.embeddings.class_embedding"),
    (r"^visual\.conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual\.positional_embedding$", "vision_model.embeddings.position_embedding.weight"),
    (r"^visual\.ln_pre\.", "vision_model.pre_layrnorm."),  # sic
    (r"^visual\.ln_post\.", "vision_model.post_layernorm."),
    (r"^visual\.transformer\.resblocks\.", "vision_model.encoder.layers."),
    (r"^transformer\.resblocks\.", "text_model.encoder.layers."),
    (r"^token_embedding\.", "text_model.embeddings.token_embedding."),
    (r"^positional_embedding$", "text_model.embeddings.position_embedding.weight"),
    (r"^ln_final\.", "text_model.final_layer_norm."),
    (r"\.ln_(1|2)\.", r".layer_norm\1."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"\.attn\.out_proj\.", ".self_attn.out_proj."),
)
_IGNORED = ("attn_mask", "logit_bias")


def preprocess_of(config: Mapping[str, Any]) -> Preprocess:
    """Return the image preprocessing of a model, from its open_clip_config.json."""
    said = config.get("preprocess_cfg", {})
    resize = {"squash": "squash", "shortest": "crop"}.get(said.get("resize_mode", "shortest"))
    if resize is None:
        raise ModelError(
            f"{OPEN_CLIP_FILE}: unsupported resize_mode {said['resize_mode']!r}",
            'Only "squash" and "shortest" are supported.',
        )
    size = said.get("size", config["model_cfg"]["vision_cfg"].get("image_size", 224))
    return Preprocess(
        size=int(size[0] if isinstance(size, list) else size),
        resize=resize,  # type: ignore[arg-type]
        mean=tuple(said.get("mean", _OPENAI_MEAN)),
        std=tuple(said.get("std", _OPENAI_STD)),
        interpolation=said.get("interpolation", "bicubic"),
    )


def convert(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> CLIPModel:
    """Convert a state dict of open_clip; towers that transformers' CLIP does not have are rejected."""
    if not weights:
        raise ModelError(f"{folder}: has no weights", "Put open_clip_model.safetensors into the folder.")
    try:
        model = CLIPModel(_config(folder, config["model_cfg"])).eval()
    except KeyError as error:
        raise ModelError(f"{folder / OPEN_CLIP_FILE}: {error} is missing") from error
    heads = {"visual.proj": "visual_projection.weight", "text_projection": "text_projection.weight"}
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        if name in heads:
            found[heads[name]] = value.T.contiguous()
        elif ".attn.in_proj_" in name:
            before, _, kind = _renamed(name).partition(".attn.in_proj_")
            for part, third in zip("qkv", value.chunk(3), strict=True):
                found[f"{before}.self_attn.{part}_proj.{kind}"] = third
        elif name not in _IGNORED:
            found[_renamed(name)] = value
    try:
        with torch.no_grad():
            model.load_state_dict({name: value.float() for name, value in found.items()})
    except UNREADABLE as error:
        raise ModelError(f"{folder}: its weights do not fit {OPEN_CLIP_FILE}: {error}") from error
    return model


def _renamed(name: str) -> str:
    for before, after in _RENAMED:
        name = re.sub(before, after, name)
    return name


def _config(folder: Path, said: Mapping[str, Any]) -> CLIPConfig:
    """Return the configuration of the same model in transformers."""
    vision, text = said["vision_cfg"], said["text_cfg"]
    special = {"timm_model_name", "hf_model_name", "attentional_pool", "pool_type", "no_ln_pre"}
    other = sorted(special & {*vision, *text}) + (["layers"] if isinstance(vision["layers"], list) else [])
    if other or said.get("custom_text"):
        raise ModelError(
            f"{folder}: open_clip models with {', '.join(other) or 'custom_text'} are not supported",
            "Use its version for transformers (config.json), or a CLIP with a plain ViT and text transformer.",
        )
    shared = {"hidden_act": "quick_gelu" if said.get("quick_gelu") else "gelu"}
    width = int(text["width"])
    return CLIPConfig(
        projection_dim=int(said["embed_dim"]),
        vision_config={
            **shared,
            **_layers(vision, int(vision["width"]) // int(vision.get("head_width", 64))),
            "image_size": vision.get("image_size", 224),
            "patch_size": vision["patch_size"],
        },
        text_config={
            **shared,
            **_layers(text, int(text.get("heads", max(1, width // 64)))),
            "vocab_size": text["vocab_size"],
            "max_position_embeddings": text["context_length"],
            "eos_token_id": int(text["vocab_size"]) - 1,  # the end-of-text token has the largest id
        },
    )


def _layers(tower: Mapping[str, Any], heads: int) -> dict[str, int]:
    width = int(tower["width"])
    return {
        "hidden_size": width,
        "intermediate_size": int(width * float(tower.get("mlp_ratio", 4.0))),
        "num_hidden_layers": int(tower["layers"]),
        "num_attention_heads": heads,
    }
