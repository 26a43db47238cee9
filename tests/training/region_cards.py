"""Made-up regions whose captions tell them apart: one shows a thing of some colour, the others nothing at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sightline.datasets.regions import Found, write_regions

COLOURS = ("red", "green", "blue", "yellow", "pink", "grey")
THINGS = ("square", "circle", "star", "ring")
DIM = len(COLOURS) + len(THINGS)


def found(seed: int, copies: int = 1, split: str = "train", everywhere: bool = False) -> Iterator[Found]:
    """Twenty-four kinds; a picture has two to five regions, of which the one that matters may be any.

    everywhere: all of them show it, so that one that is hidden can be guessed from the others.
    """
    chance = np.random.default_rng(seed)
    for number in range(copies):
        for row, colour in enumerate(COLOURS):
            for column, thing in enumerate(THINGS):
                count = int(chance.integers(2, 6))
                features = chance.normal(0, 0.1, (count, DIM)).astype(np.float32)
                one = chance.integers(count)
                for region in range(count) if everywhere else [one]:
                    features[region, [row, len(COLOURS) + column]] += 1
                boxes = np.sort(chance.random((count, 2, 2)), axis=1).reshape(count, 4)
                captions = {"en": (f"a {colour} {thing}", f"one {thing} that is {colour}")}
                yield Found(f"{split}-{number}-{colour}-{thing}.jpg", features, boxes, captions=captions, split=split)


def store(folder: Path, seed: int, copies: int = 1, split: str = "train", everywhere: bool = False) -> Path:
    write_regions(found(seed, copies, split, everywhere), folder)
    return folder


def recipe(train: Path, val: Path | None = None, **changes: Any) -> dict[str, Any]:
    """A recipe for a tiny model of regions from nothing, as read from TOML."""
    encoder = {
        "model_type": "bert",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "initializer_range": 0.06,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "vocab_size": 200,
        "max_position_embeddings": 32,
    }
    made: dict[str, Any] = {
        "name": "regions",
        "model": {
            "kind": "single_stream",
            "embedding_dim": 16,
            "fragment_dim": 8,
            "text_input": {"max_length": 12},
            "regions": {"feature_dim": DIM, "box_dim": 6},
            "transformer": {"config": encoder},
        },
        "data": {"train": [str(train)], "val": [str(val)] if val else [], "batch_size": 24, "draw": "unique"},
        "losses": {"embed": {"loss": "contrastive"}},
        "schedule": {"steps": 200, "warmup": 0.1},
        "optimizer": {"lr": 3e-3},
    }
    for key, value in changes.items():
        made[key] = {**made[key], **value} if isinstance(value, dict) and key in ("data", "model") else value
    return made
