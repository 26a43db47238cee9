"""Published models made tiny: each from its own configuration, saved as its authors and transformers save it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import constants
from transformers import (
    BertTokenizer,
    BlipImageProcessorPil,
    CLIPImageProcessorPil,
    CLIPTokenizer,
    PreTrainedModel,
    Siglip2ImageProcessorPil,
    Siglip2Tokenizer,
    SiglipImageProcessorPil,
    T5Tokenizer,
    ViltImageProcessorPil,
    ViTImageProcessorPil,
)

import tiny

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
REGION_LAYERS = 2
SIGHT = {**SMALL, "image_size": 32, "patch_size": 8}
WORDS = [*tiny.WORDS, "[MASK]"]
SQUARE = {"height": 32, "width": 32}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
FEATURES = 10


def save(model: PreTrainedModel, folder: Path, *others: Any) -> PreTrainedModel:
    """Save a model with what prepares its inputs; its random layers enlarged, so that a dropped one would show."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    for part in (model, *others):
        part.save_pretrained(folder)
    return model.eval()


def bert_tokenizer() -> BertTokenizer:
    return BertTokenizer({word: place for place, word in enumerate(WORDS)}, model_max_length=40)


def clip(folder: Path, eos_token_id: int | None = None) -> PreTrainedModel:
    pieces = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "do", "dog</w>", "re", "red</w>"]
    vocabulary = {piece: place for place, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
    merges = [("d", "o"), ("do", "g</w>"), ("r", "e"), ("re", "d</w>")]
    tokenizer = CLIPTokenizer(vocabulary, merges, model_max_length=20)
    end = len(vocabulary) - 1 if eos_token_id is None else eos_token_id
    config = transformers.CLIPConfig(
        text_config={**SMALL, "vocab_size": len(vocabulary), "max_position_embeddings": 20, "eos_token_id": end},
        vision_config=SIGHT,
        projection_dim=16,
    )
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=SQUARE)
    return save(transformers.CLIPModel(config), folder, tokenizer, processor)


def deep_clip(folder: Path, layers: int = 12) -> PreTrainedModel:
    """A CLIP with as many layers and pixels as its base size, and next to nothing in them."""
    vision = {**SMALL, "hidden_size": 16, "num_hidden_layers": layers, "image_size": 224, "patch_size": 32}
    config = transformers.CLIPConfig(
        text_config={**SMALL, "vocab_size": 60, "max_position_embeddings": 20}, vision_config=vision, projection_dim=16
    )
    return save(transformers.CLIPModel(config), folder)


def deep_bert(folder: Path, layers: int = 12) -> PreTrainedModel:
    """A BERT with many narrow layers."""
    text = {**SMALL, "num_hidden_layers": layers, "vocab_size": len(WORDS), "max_position_embeddings": 40}
    return save(transformers.BertModel(transformers.BertConfig(**text)), folder, bert_tokenizer())


def siglip(folder: Path) -> PreTrainedModel:
    pieces = ["<pad>", "</s>", "<unk>", "▁", *LETTERS, "▁a", "▁dog", "▁red", "▁ball", "!", ".", "D"]
    vocabulary = [(piece, 0.0 if piece.startswith("<") else -(len(piece) ** -1.0) * 9) for piece in pieces]
    tokenizer = T5Tokenizer(vocabulary, extra_ids=0, pad_token="</s>", model_max_length=16)
    config = transformers.SiglipConfig(
        text_config={**SMALL, "vocab_size": len(vocabulary), "max_position_embeddings": 16}, vision_config=SIGHT
    )
    model = save(transformers.SiglipModel(config), folder, tokenizer, SiglipImageProcessorPil(size=SQUARE))
    path = folder / "tokenizer_config.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "tokenizer_class": "SiglipTokenizer", "padding_side": "right"}))
    return model


def siglip2(folder: Path) -> PreTrainedModel:
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *LETTERS, "do", "dog"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Siglip2Tokenizer(
        vocabulary, [("d", "o"), ("do", "g")], padding_side="right", model_max_length=16, byte_fallback=False
    )
    config = transformers.Siglip2Config(
        text_config={**SMALL, "vocab_size": len(vocabulary), "max_position_embeddings": 16},
        vision_config={**SMALL, "num_patches": 9, "patch_size": 8},
    )
    processor = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    return save(transformers.Siglip2Model(config), folder, tokenizer, processor)


def pair(folder: Path, vision: str = "vit") -> PreTrainedModel:
    """A ViT or DINOv2 with a BERT."""
    sight = transformers.AutoConfig.for_model(vision, **SIGHT)
    text = transformers.BertConfig(**SMALL, vocab_size=len(WORDS), max_position_embeddings=40)
    config = transformers.VisionTextDualEncoderConfig(
        vision_config=sight.to_dict(), text_config=text.to_dict(), projection_dim=16
    )
    crops = {"do_center_crop": True, "crop_size": SQUARE, "size": {"shortest_edge": 40}}
    processor = CLIPImageProcessorPil(**crops) if vision == "dinov2" else ViTImageProcessorPil(size=SQUARE)
    return save(transformers.VisionTextDualEncoderModel(config), folder, bert_tokenizer(), processor)


def dino_pair(folder: Path) -> PreTrainedModel:
    return pair(folder, "dinov2")


def blip(folder: Path) -> PreTrainedModel:
    sight = {**SIGHT, "hidden_size": 48, "initializer_range": 0.02}  # its own leaves pictures out
    text = {**SMALL, "vocab_size": len(WORDS), "max_position_embeddings": 40, "encoder_hidden_size": 48}
    config = transformers.BlipConfig(text_config=text, vision_config=sight, image_text_hidden_size=16)
    model = transformers.BlipForImageTextRetrieval(config)
    return save(model, folder, bert_tokenizer(), BlipImageProcessorPil(size=SQUARE))


def vilt(folder: Path) -> PreTrainedModel:
    config = transformers.ViltConfig(**SIGHT, vocab_size=len(WORDS), max_position_embeddings=40)
    processor = ViltImageProcessorPil(size={"shortest_edge": 32}, size_divisor=8)
    return save(transformers.ViltForImageAndTextRetrieval(config), folder, bert_tokenizer(), processor)


PIXEL_FAMILIES: dict[str, Callable[[Path], PreTrainedModel]] = {
    "clip": clip,
    "siglip": siglip,
    "siglip2": siglip2,
    "vit-bert": pair,
    "dinov2-bert": dino_pair,
    "blip": blip,
    "vilt": vilt,
}


def in_hub(cache: Path, name: str, patch: pytest.MonkeyPatch) -> Path:
    """The folder of a model in a hub cache, as if it had been downloaded; nothing that is not there can be had."""
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    return repository / "snapshots" / ("0" * 40)


def shapes_of(family: str) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a checkpoint as Oscar's and UNITER's authors publish them, of a tiny model."""
    hidden, inner = SMALL["hidden_size"], SMALL["intermediate_size"]
    root = {"oscar": "bert", "uniter": "uniter"}[family]
    found: dict[str, tuple[int, ...]] = {
        f"{root}.embeddings.word_embeddings.weight": (len(WORDS), hidden),
        f"{root}.embeddings.position_embeddings.weight": (40, hidden),
        f"{root}.embeddings.token_type_embeddings.weight": (2, hidden),
        **_norm(f"{root}.embeddings.LayerNorm", hidden),
        **_linear(f"{root}.pooler.dense", hidden, hidden),
    }
    for layer in range(REGION_LAYERS):
        own = f"{root}.encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            found |= _linear(f"{own}.attention.{part}", hidden, hidden)
        found |= _norm(f"{own}.attention.output.LayerNorm", hidden)
        found |= _linear(f"{own}.intermediate.dense", inner, hidden)
        found |= _linear(f"{own}.output.dense", hidden, inner)
        found |= _norm(f"{own}.output.LayerNorm", hidden)
    if family == "oscar":
        return found | _linear("bert.img_embedding", hidden, FEATURES + 6) | _linear("classifier", 2, hidden)
    regions = "uniter.img_embeddings"
    found |= _linear(f"{regions}.img_linear", hidden, FEATURES) | _linear(f"{regions}.pos_linear", hidden, 7)
    for part in ("img_layer_norm", "pos_layer_norm", "LayerNorm"):
        found |= _norm(f"{regions}.{part}", hidden)
    found[f"{regions}.mask_embedding.weight"] = (2, FEATURES)
    return found | _linear("itm_output", 2, hidden)


def region_weights(family: str, *, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in shapes_of(family).items():
        around = 1.0 if name.endswith(("LayerNorm.weight", "layer_norm.weight")) else 0.0
        made[name] = around + 0.3 * torch.randn(shape, generator=generator)
    return made


def save_regions(weights: dict[str, torch.Tensor], folder: Path, name: str = "pytorch_model.bin") -> None:
    """Save a state dict with BERT's word list and a configuration without a model type, as in 2020."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(weights, folder / name)
    settings = {
        **SMALL,
        "num_hidden_layers": REGION_LAYERS,
        "vocab_size": len(WORDS),
        "max_position_embeddings": 40,
        "type_vocab_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def _linear(name: str, out: int, given: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, given), f"{name}.bias": (out,)}


def _norm(name: str, dim: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}
