"""Tiny models with random weights, of every kind, for tests."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors

from sightline.bundle import Tokenizer
from sightline.media import Preprocess
from sightline.models import (
    DualStreamConfig,
    RegionConfig,
    RelationConfig,
    SingleStreamConfig,
    TextInput,
    TowerConfig,
)
from sightline.models.checkpoint import Config, build
from sightline.models.retriever import EncodedTensors, Retriever

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "a",
    "the",
    "dog",
    "cat",
    "bird",
    "child",
    "man",
    "woman",
    "on",
    "in",
    "with",
    "and",
    "red",
    "green",
    "blue",
    "yellow",
    "ball",
    "beach",
    "grass",
    "snow",
    "water",
    "running",
    "jumping",
    "sitting",
    "two",
    "three",
    "small",
    "large",
    "circle",
    "square",
    "triangle",
    "left",
    "right",
    "above",
    "below",
]
MAX_LENGTH = 12
PREPROCESS = Preprocess(size=32, resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "projection_dim": 16,
}
TEXT = {
    "model_type": "bert",
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 40,
}

DUAL = DualStreamConfig(
    image=TowerConfig(config=VISION),
    text=TowerConfig(config=TEXT),
    preprocess=PREPROCESS,
    text_input=TextInput(MAX_LENGTH),
    embedding_dim=16,
    fragment_dim=8,
    pool_to=2,
)
FAST = dataclasses.replace(
    DUAL,
    image=TowerConfig(config={**VISION, "image_size": 16, "num_hidden_layers": 2}),
    preprocess=dataclasses.replace(PREPROCESS, size=16),
)
"""With a smaller image tower, whose graph can be the fast one of a bundle of `DUAL`."""
SINGLE = SingleStreamConfig(
    transformer=TowerConfig(config=TEXT),
    image=TowerConfig(config=VISION),
    preprocess=PREPROCESS,
    text_input=TextInput(MAX_LENGTH),
    embedding_dim=16,
    fragment_dim=8,
    pool_to=2,
)
PIXEL_MODELS: dict[str, Config] = {
    "dual-shared": DUAL,
    "dual-own": dataclasses.replace(DUAL, matcher="own", matcher_layer=1, pool_layer=2),
    "dual-states": dataclasses.replace(
        DUAL, matcher="own", matcher_reads="states", matcher_layer=2, text_pooling="last"
    ),
    "dual-aligned": dataclasses.replace(
        DUAL,
        matcher="aligned",
        matcher_reads="states",
        matcher_layers=1,
        matcher_layer=2,
        matcher_text_layer=1,
        matcher_text_layers=1,
        matcher_image_layers=1,
    ),
    "dual-plain": dataclasses.replace(DUAL, matcher="none", text_pooling="first", pool_to=0),
    "dual-reader": dataclasses.replace(
        DUAL, image_reader=TowerConfig(config={**TEXT, "num_hidden_layers": 1}), matcher="none", text_pooling="first"
    ),
    "dual-reader-aligned": dataclasses.replace(
        DUAL,
        image_reader=TowerConfig(config={**TEXT, "num_hidden_layers": 1}),
        matcher="aligned",
        matcher_reads="states",
        matcher_reads_image="states",
        matcher_layers=1,
        image_pooling="mean",
    ),
    "single": SINGLE,
    "single-mean": dataclasses.replace(SINGLE, embedding_dim=0),
}
INFLATED_MODELS: dict[str, Config] = {
    "dual-codes": dataclasses.replace(DUAL, codes=3, matcher="own"),
    "dual-late-codes": dataclasses.replace(PIXEL_MODELS["dual-states"], codes=3, codes_layer=2),  # type: ignore[type-var]
    "dual-clusters": dataclasses.replace(
        PIXEL_MODELS["dual-states"],  # type: ignore[type-var]
        codes=2,
        codes_layer=1,
        pool="kmeans",
        pool_to=5,
    ),
    "dual-reader-clusters": dataclasses.replace(PIXEL_MODELS["dual-reader"], codes=2, pool="kmeans", pool_to=5),  # type: ignore[type-var]
    "dual-first": dataclasses.replace(DUAL, matcher="none", fragments=3, codes=2, text_pooling="last"),
    "single-codes": dataclasses.replace(SINGLE, codes=3),
    "single-first": dataclasses.replace(SINGLE, fragments=3, codes=2, pool="kmeans", pool_to=5),
}
"""Models whose fragments are not just their words and patches: with codes, in clusters, the first of them alone."""
BIGRU = {"model_type": "bigru", "vocab_size": len(WORDS), "word_dim": 12, "hidden_size": 20}
RELATED_MODELS: dict[str, Config] = {
    "dual-relations": dataclasses.replace(DUAL, fragment_dim=16, relations=RelationConfig(heads=4)),
    "dual-bigru": dataclasses.replace(
        DUAL,
        text=TowerConfig(config=BIGRU),
        matcher="none",
        fragment_dim=16,
        relations=RelationConfig(text=False, heads=2),
    ),
}
"""Models whose embeddings are made of fragments that look at each other."""
REGION_MODEL = dataclasses.replace(SINGLE, image=None, regions=RegionConfig(feature_dim=10, box_dim=6))
DUAL_REGIONS = dataclasses.replace(DUAL, image=None, preprocess=None, regions=REGION_MODEL.regions)
REGION_MODELS: dict[str, Config] = {
    "single": REGION_MODEL,
    "dual-mean": DUAL_REGIONS,
    "dual-clusters": dataclasses.replace(DUAL_REGIONS, matcher="own", pool="kmeans", pool_to=3),
    "dual-reader": dataclasses.replace(
        DUAL_REGIONS, image_reader=TowerConfig(config={**TEXT, "num_hidden_layers": 1}), text_pooling="first"
    ),
    "dual-relations": dataclasses.replace(DUAL_REGIONS, fragment_dim=16, relations=RelationConfig(heads=4)),
}
"""Models that read regions instead of pixels."""


GERMAN = {"a": "ein", "dog": "hund", "cat": "katze", "child": "kind", "man": "mann", "on": "am", "beach": "strand"}


def german_tokenizer() -> Tokenizer:
    """The same tokenizer with some German words in the places of English ones, in lower case."""
    return tokenizer([GERMAN.get(word, word) for word in WORDS])


def tokenizer(words: Sequence[str] = WORDS) -> Tokenizer:
    """A word-level tokenizer over some words, with [CLS] and [SEP]."""
    backend = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    if words is not WORDS:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return Tokenizer(backend, MAX_LENGTH)


def retriever(config: Config, seed: int = 0) -> Retriever:
    """The model of a configuration with random weights, ready to encode.

    Random layers are enlarged: as initialised, a tiny transformer changes its input so little that a wrong mask or a
    dropped layer would not show.
    """
    torch.manual_seed(seed)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model


def image_graph(config: Config, folder: Path) -> Path:
    """The image graph of a model, alone in a folder."""
    from sightline.onnx_export.exporter import _image_graph

    with torch.inference_mode():
        _image_graph(retriever(config, seed=1), folder)
    return folder / "image.onnx"


def copy_graphs(bundle: Path, patch: pytest.MonkeyPatch) -> None:
    """Have exports copy the graphs of a bundle, which must be of the same model, instead of tracing them anew."""

    def graphs(retriever: Retriever, tokenizer: Tokenizer, folder: Path) -> EncodedTensors:
        for graph in bundle.glob("*.onnx"):
            shutil.copy(graph, folder)
        with torch.inference_mode():
            return retriever.encode_images(torch.zeros(2, 3, 32, 32))

    patch.setattr("sightline.onnx_export.exporter._graphs", graphs)
