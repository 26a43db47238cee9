"""Synthetic captioned pictures, drawn anew each time, whose captions tell them apart; and recipes for them.

Shapes are easy enough that a tiny model learns them from nothing in half a minute, and of so many kinds that two
pictures of a batch are rarely of the same one, where each would be a false negative of the other. Cards are easier.
"""

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from sightline.demo.shapes import SIDE, Drawn, nearly, shapes, write

__all__ = ["ALL", "JOINT", "PATTERN", "cards", "recipe", "shapes", "write", "write_toml"]

INKS = {
    "red": (200, 30, 30),
    "green": (40, 180, 60),
    "blue": (40, 70, 220),
    "yellow": (235, 225, 60),
    "pink": (250, 170, 200),
    "grey": (128, 128, 128),
}
GROUNDS = {"black": (20, 20, 20), "white": (245, 245, 245), "purple": (130, 40, 160), "orange": (240, 140, 30)}


def cards(seed: int, copies: int = 1) -> Iterator[Drawn]:
    """A square of one colour anywhere on a ground of another, 24 kinds."""
    chance = random.Random(seed)
    for number, ink, ground in itertools.product(range(copies), INKS, GROUNDS):
        picture = Image.new("RGB", (SIDE, SIDE), nearly(GROUNDS[ground], 12, chance))
        size = chance.randrange(12, 20)
        left, top = chance.randrange(2, 30 - size), chance.randrange(2, 30 - size)
        fill = nearly(INKS[ink], 12, chance)
        ImageDraw.Draw(picture).rectangle((left, top, left + size, top + size), fill=fill)
        captions = [f"a {ink} square on {ground}", f"{ground} ground, one square that is {ink}"]
        yield Drawn(f"{number}-{ink}-{ground}.png", picture, captions)


def recipe(
    train: Path, val: Path | None = None, *, hidden: int = 64, layers: int = 2, dropout: float = 0.0, **changes: Any
) -> dict[str, Any]:
    """A recipe for a tiny model from nothing, as read from TOML; a change to a table of plain settings adds to it."""
    encoder = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "initializer_range": 0.06,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    made: dict[str, Any] = {
        "name": "shapes",
        "model": {
            "kind": "dual_stream",
            "embedding_dim": 32,
            "fragment_dim": 16,
            "pool_to": 0,
            "matcher": "shared",
            "preprocess": {"size": SIDE, "resize": "squash", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
            "text_input": {"max_length": 12},
            "image": {"config": {**encoder, "model_type": "vit", "image_size": SIDE, "patch_size": 8}},
            "text": {"config": {**encoder, "model_type": "bert", "vocab_size": 200, "max_position_embeddings": 32}},
        },
        "data": {"train": [str(train)], "val": [str(val)] if val else [], "batch_size": 48, "draw": "unique"},
        "losses": {"embed": {"loss": "contrastive"}},
        "schedule": {"steps": 240, "warmup": 0.1},
        "optimizer": {"lr": 2e-3},
    }
    for key, value in changes.items():
        adds = key in ("model", "data", "optimizer")
        made[key] = {**made[key], **value} if adds else value
    return made


JOINT = {"embed": {"loss": "contrastive"}, "match": {"loss": "matching"}}
ALL = {**JOINT, "late": {"loss": "contrastive", "on": "fragments"}}
"""Two losses: one that trains the embeddings, one that trains the matcher."""
PATTERN = ["embed", "embed", "match"]
"""How paper 1 alternates them."""


def _toml(value: Any) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def write_toml(path: Path, tables: dict[str, Any]) -> Path:
    """Write tables, such as a recipe, as TOML."""
    path.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in tables.items()))
    return path
