"""Four captioned images and a recipe for a tiny model, to try training in seconds."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

COLOURS = ("red", "green", "blue", "white")


def tiny_recipe(folder: str | Path, codes: int = 0) -> dict[str, Any]:
    """Draw four captioned images into a folder, and return a recipe that trains a tiny model on them.

    codes: number of learned vectors that the model has in addition to its words and patches.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "captions.jsonl").open("w", encoding="utf-8") as file:
        for colour in COLOURS:
            Image.new("RGB", (16, 16), colour).save(folder / f"{colour}.png")
            print(json.dumps({"image": f"{colour}.png", "captions": [f"a {colour} square"]}), file=file)
    encoder = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return {
        "name": "tiny",
        "model": {
            "kind": "dual_stream",
            "embedding_dim": 8,
            "fragment_dim": 8,
            "pool_to": 0,
            "codes": codes,
            "matcher": "none",
            "preprocess": {"size": 16, "resize": "squash", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
            "text_input": {"max_length": 8},
            "image": {"config": {**encoder, "model_type": "vit", "image_size": 16, "patch_size": 8}},
            "text": {"config": {**encoder, "model_type": "bert", "vocab_size": 40, "max_position_embeddings": 16}},
        },
        "data": {"train": [str(folder / "captions.jsonl")], "batch_size": 4},
        "losses": {"embed": {"loss": "contrastive"}},
        "schedule": {"steps": 2},
    }
