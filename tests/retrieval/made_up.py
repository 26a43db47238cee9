"""A model whose every output is made up, a store of its items, and a clock that only moves when told to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Ability, Model
from sightline.media import ImageSource, Preprocess
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

DIM = 8


@dataclass
class Clock:
    """Stands still, unless `advance` is called."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def unit(*numbers: float) -> np.ndarray:
    vector = np.zeros(DIM, np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.linalg.norm(vector)


def units(rng: np.random.Generator, *shape: int) -> np.ndarray:
    vectors = rng.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@dataclass
class MadeUp(Model):
    """Texts have the embeddings that `vectors` gives them; items are numbered, and their first state is their number.

    logits: [items], what `match` says of each item whatever the other side is.
    costs: seconds that `match` takes, however few pairs, and for every one; the clock is moved by them.
    """

    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    picture: np.ndarray = field(default_factory=lambda: unit(1))
    logits: np.ndarray = field(default_factory=lambda: np.zeros(0))
    abilities: frozenset[Ability] = frozenset({"embed", "fragments", "match"})
    clock: Clock = field(default_factory=Clock)
    costs: tuple[float, float] = (0.0, 0.0)
    name: str = "made-up"
    sha256: str = "c" * 64
    matched: list[int] = field(default_factory=list)
    preprocess: ClassVar[Preprocess] = Preprocess(2, resize="squash", mean=(0, 0, 0), std=(1, 1, 1))

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        return encoded(np.stack([self.vectors[text] for text in texts]))

    def encode_images(self, pixels: np.ndarray) -> Encoded:
        return encoded(np.repeat(self.picture[None], len(pixels), axis=0))

    def match(
        self, text_states: np.ndarray, text_mask: np.ndarray, image_states: np.ndarray, image_mask: np.ndarray
    ) -> np.ndarray:
        numbers = np.rint(np.maximum(text_states[:, 0, 0], image_states[:, 0, 0])).astype(int)
        self.matched.append(len(numbers))
        self.clock.advance(self.costs[0] + self.costs[1] * len(numbers))
        return self.logits[numbers].astype(np.float32)


def encoded(embedding: np.ndarray, numbers: Sequence[int] | None = None, seed: int = 0) -> Encoded:
    """Items with these embeddings; each has two fragments, and two states of which the first is its number."""
    rng = np.random.default_rng(seed)
    count = len(embedding)
    states = np.zeros((count, 2, 4), np.float32)
    states[:, 0, 0] = -1 if numbers is None else numbers
    states[:, 1, 1:] = rng.standard_normal((count, 3))
    return Encoded(embedding.astype(np.float32), np.ones((count, 2), bool), units(rng, count, 2, 3), states)


def store_of(folder: Path, embeddings: np.ndarray, shape: Shape | None = None) -> LocalStore:
    """A store of items 0, 1, 2 … with these embeddings."""
    store = LocalStore.open(folder, shape or Shape(DIM, 3, 4), write=True)
    numbers = np.arange(len(embeddings))
    store.add(numbers, encoded(np.asarray(embeddings), numbers.tolist()))
    return store


@dataclass(frozen=True)
class Pixel:
    """The smallest picture there is."""

    name: str = "pixel.png"

    def read(self) -> bytes:
        import io

        from PIL import Image

        data = io.BytesIO()
        Image.new("RGB", (2, 2), "red").save(data, "PNG")
        return data.getvalue()


PIXEL: ImageSource = Pixel()
