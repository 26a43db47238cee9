"""Synthetic captioned pictures: coloured shapes in places, drawn anew each time, whose captions tell them apart."""

import json
import random
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 220), "yellow": (230, 210, 50)}
SHAPES = ("circle", "square", "triangle")
PLACES = {"top left": (0, 0), "top right": (1, 0), "bottom left": (0, 1), "bottom right": (1, 1)}
KINDS = [(colour, shape, place) for colour in COLOURS for shape in SHAPES for place in PLACES]


def draw(kind: tuple[str, str, str], random: random.Random, side: int = 32) -> Image.Image:
    colour, shape, place = kind
    shade = random.randrange(150, 256)
    picture = Image.new("RGB", (side, side), (shade, shade, shade))
    half = side // 2
    size = random.randrange(half - 5, half - 1)
    left = PLACES[place][0] * half + random.randrange(half - size)
    top = PLACES[place][1] * half + random.randrange(half - size)
    box = (left, top, left + size, top + size)
    fill = tuple(max(0, min(255, c + random.randrange(-25, 26))) for c in COLOURS[colour])
    pen = ImageDraw.Draw(picture)
    if shape == "circle":
        pen.ellipse(box, fill=fill)
    elif shape == "square":
        pen.rectangle(box, fill=fill)
    else:
        pen.polygon([(left, top + size), (left + size / 2, top), (left + size, top + size)], fill=fill)
    return picture


def write(folder: Path, copies: int, seed: int) -> Path:
    """Write `copies` of every kind of picture with two captions each, as JSONL; gives its path."""
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    path = folder / "captions.jsonl"
    with path.open("w") as file:
        for number in range(copies):
            for colour, shape, place in KINDS:
                name = f"{number}-{colour}-{shape}-{place.replace(' ', '-')}.png"
                draw((colour, shape, place), chance).save(folder / name)
                captions = [f"a {colour} {shape} at the {place}", f"{place}: one {shape} that is {colour}"]
                file.write(json.dumps({"image": name, "captions": captions}) + "\n")
    return path


def recipe(train: Path, val: Path, **changes: object) -> dict[str, object]:
    """A recipe for a tiny model from nothing, as read from TOML."""
    return {
        "name": "shapes",
        "model": {
            "kind": "dual_stream",
            "embedding_dim": 32,
            "fragment_dim": 16,
            "pool_to": 0,
            "matcher": "shared",
            "preprocess": {"size": 32, "resize": "squash", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
            "text_input": {"max_length": 12},
            "image": {
                "config": {
                    "model_type": "vit", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
                }
            },
            "text": {
                "config": {
                    "model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 32,
                    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
                }
            },
        },
        "data": {"train": [str(train)], "val": [str(val)], "batch_size": 48, "draw": "unique"},
        "objectives": {"embed": {"loss": "contrastive"}},
        "schedule": {"steps": 300, "warmup": 0.1},
        "optimizer": {"lr": 1e-3},
        **changes,
    }  # fmt: skip
