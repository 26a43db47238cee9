"""CLIP as sentence-transformers and open_clip save it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import CLIPModel

from models import published
from sightline.errors import ModelError
from sightline.registry.loader import load, locate

IN_OPEN_CLIP = {
    "text_model.embeddings.token_embedding": "token_embedding",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm": "ln_final",
    "text_model.encoder.layers": "transformer.resblocks",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding": "visual.conv1",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm": "visual.ln_pre",
    "vision_model.post_layernorm": "visual.ln_post",
    "vision_model.encoder.layers": "visual.transformer.resblocks",
    "layer_norm": "ln_",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}


def as_open_clip(model: CLIPModel) -> dict[str, torch.Tensor]:
    """The weights of a CLIP under the names of open_clip."""
    own = model.state_dict()
    found = {"visual.proj": own["visual_projection.weight"].T, "text_projection": own["text_projection.weight"].T}
    for name, value in own.items():
        for ours, theirs in IN_OPEN_CLIP.items():
            name = name.replace(ours, theirs)
        if part := re.fullmatch(r"(.*)\.self_attn\.([qkv])_proj\.(weight|bias)", name):
            key = f"{part[1]}.attn.in_proj_{part[3]}"
            before = found.get(key, value[:0])
            assert len(before) == "kvq".index(part[2]) * len(value), "keys, values and queries come in this order"
            found[key] = torch.cat([before, value])
        elif "position_ids" not in name and not name.endswith("projection.weight"):
            found[name] = value
    for key, value in found.items():
        if "in_proj" in key:
            k, v, q = value.chunk(3)
            found[key] = torch.cat([q, k, v])
    return {name: value.contiguous().clone() for name, value in found.items()}


def open_clip_config(model: CLIPModel) -> dict[str, object]:
    """What open_clip writes beside the weights."""
    vision, text = model.config.vision_config, model.config.text_config
    towers = {
        "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 1, "head_width": 8, "mlp_ratio": 2.0},
        "text_cfg": {
            "context_length": text.max_position_embeddings, "vocab_size": text.vocab_size, "width": 32, "heads": 4,
            "layers": 1, "mlp_ratio": 2.0,
        },
    }  # fmt: skip
    assert vision.hidden_size == text.hidden_size == 32
    return {"model_cfg": {"embed_dim": 16, "quick_gelu": True, **towers}, "preprocess_cfg": {"size": [32, 32]}}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("clip")
    published.clip(folder)
    return folder


def assert_same(folder: Path, clip: Path) -> None:
    found, expected = load(folder), load(clip)
    assert found.preprocess == expected.preprocess
    texts = ["red dog", "a dog"]
    pixels = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    for ours, theirs in (
        (found.encode_texts(texts), expected.encode_texts(texts)),
        (found.encode_images(pixels), expected.encode_images(pixels)),
    ):
        np.testing.assert_allclose(ours.embedding, theirs.embedding, atol=1e-5)


@pytest.mark.parametrize("file", ["open_clip_model.safetensors", "epoch_3.pt"])
def test_an_open_clip_folder_gives_what_the_same_clip_gives(file: str, clip: Path, tmp_path: Path) -> None:
    model = CLIPModel.from_pretrained(clip)
    weights = as_open_clip(model)
    if file.endswith(".pt"):
        torch.save(
            {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in weights.items()}}, tmp_path / file
        )
    else:
        save_file(weights, tmp_path / file)
    (tmp_path / "open_clip_config.json").write_text(json.dumps(open_clip_config(model)))
    (tmp_path / "tokenizer.json").write_bytes((clip / "tokenizer.json").read_bytes())
    assert_same(tmp_path, clip)


def test_an_open_clip_with_another_tower_is_refused_by_name(clip: Path, tmp_path: Path) -> None:
    config = open_clip_config(CLIPModel.from_pretrained(clip))
    config["model_cfg"]["vision_cfg"]["timm_model_name"] = "convnext_base"  # type: ignore[index]
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    torch.save({"logit_scale": torch.tensor(1.0)}, tmp_path / "open_clip_pytorch_model.bin")
    with pytest.raises(ModelError, match="open_clip models with timm_model_name are not supported"):
        load(tmp_path)


def test_weights_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "epoch_3.pt")
    with pytest.raises(
        ModelError, match=r"epoch_3\.pt: contains only weights[\s\S]*open_clip_config\.json and tokenizer\.json"
    ):
        load(tmp_path / "epoch_3.pt")


def test_the_clip_of_a_sentence_transformers_folder_is_opened(clip: Path, tmp_path: Path) -> None:
    (tmp_path / "0_CLIPModel").symlink_to(clip)
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    assert_same(tmp_path, clip)
    assert load(tmp_path).name == tmp_path.name


def test_a_sentence_transformers_folder_of_texts_is_refused(tmp_path: Path) -> None:
    module = {"path": "", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(ModelError, match="a sentence-transformers model of Transformer, which only reads texts"):
        locate(tmp_path)


@pytest.mark.parametrize("path", ["../clip", "/etc", "0/../../clip"])
def test_a_sentence_transformers_folder_cannot_name_another_folder(path: str, tmp_path: Path) -> None:
    module = {"path": path, "type": "sentence_transformers.models.CLIPModel"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(ModelError, match="leads outside the folder"):
        locate(tmp_path)
