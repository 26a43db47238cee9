"""What you would write instead of Sightline: a transformers text tower in torch, and a dot product in NumPy.

    python -m benchmarks.plain_search FOLDER "a dog on a beach"

FOLDER contains a model and its tokenizer as saved by transformers, `vectors.npy` and `names.txt` (see end_to_end.py).
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer


class PlainSearch:
    """A model, and the vectors of images."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.vectors = np.load(folder / "vectors.npy")
        self.names = (folder / "names.txt").read_text().splitlines()

    def search(self, text: str, k: int = 20) -> list[tuple[str, float]]:
        """Return the names of the k nearest images and their cosines, best first."""
        with torch.inference_mode():
            states = self.model(**self.tokenizer(text, return_tensors="pt")).last_hidden_state
        vector = states[0].mean(dim=0).numpy()
        scores = self.vectors @ (vector / np.linalg.norm(vector))
        best = np.argsort(-scores)[:k]
        return [(self.names[place], float(scores[place])) for place in best]


if __name__ == "__main__":
    for name, score in PlainSearch(Path(sys.argv[1])).search(sys.argv[2]):
        print(f"{score:.3f} {name}")
