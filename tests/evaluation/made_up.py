"""A model whose every output is made up beforehand, and pictures that carry their number in their colour."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from PIL import Image

from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Ability, Model
from sightline.datasets import Record
from sightline.media import ImageBytes, Preprocess

COUNTS = [1, 5, 2, 7, 3, 1, 4, 2]
IMAGE_OF = np.repeat(np.arange(len(COUNTS)), COUNTS)

LONGEST = 30
"""Texts of more characters are reported as truncated."""


@cache
def picture(number: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (2, 2), (number // 256, number % 256, 0)).save(data, "PNG")
    return data.getvalue()


def record(number: int, captions: Sequence[str], *, lang: str = "en", broken: bool = False) -> Record:
    """A picture called after its number; a broken one is cut off."""
    data = picture(number)[:20] if broken else picture(number)
    return Record(f"picture-{number}", ImageBytes(f"{number}.png", data), {lang: tuple(captions)} if captions else {})


@dataclass
class MadeUp(Model):
    """Embeddings [items, dim] and, where given, fragments [items, n, dim] and logits [texts, images] by number.

    A text is known by its number, which it begins with ("17 a dog"). Fragments and states come with padding in front
    and behind, full of numbers that would win if a mask were ignored. States are the item's number.
    """

    texts: np.ndarray
    images: np.ndarray
    text_fragments: list[np.ndarray] | None = None
    image_fragments: list[np.ndarray] | None = None
    logits: np.ndarray | None = None
    name: str = "made-up"
    matched: list[tuple[int, int]] = field(default_factory=list)

    @property
    def abilities(self) -> frozenset[Ability]:
        found: set[Ability] = {"embed"}
        if self.text_fragments is not None:
            found.add("fragments")
        if self.logits is not None:
            found.add("match")
        return frozenset(found)

    @property
    def preprocess(self) -> Preprocess:
        return Preprocess(1, resize="squash", mean=(0, 0, 0), std=(1, 1, 1))

    def encode_images(self, pixels: np.ndarray) -> Encoded:
        colours = np.rint(pixels[:, :2, 0, 0] * 255).astype(int)
        return self._encoded(colours[:, 0] * 256 + colours[:, 1], self.images, self.image_fragments)

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        numbers = np.array([int(text.split()[0]) for text in texts])
        encoded = self._encoded(numbers, self.texts, self.text_fragments)
        truncated = np.array([len(text) > LONGEST for text in texts])
        return Encoded(encoded.embedding, encoded.mask, encoded.fragments, encoded.states, truncated)

    def match(
        self, text_states: np.ndarray, text_mask: np.ndarray, image_states: np.ndarray, image_mask: np.ndarray
    ) -> np.ndarray:
        texts, images = _number(text_states, text_mask), _number(image_states, image_mask)
        self.matched.extend(zip(texts.tolist(), images.tolist(), strict=True))
        assert self.logits is not None
        return self.logits[texts, images].astype(np.float32)

    def _encoded(self, numbers: np.ndarray, table: np.ndarray, fragments: list[np.ndarray] | None) -> Encoded:
        own = [fragments[number] for number in numbers] if fragments else [np.zeros((1, 2))] * len(numbers)
        mask = np.zeros((len(numbers), 2 + max(map(len, own))), bool)
        rows = np.full((*mask.shape, own[0].shape[1]), 50.0, np.float32)
        for item, some in enumerate(own):
            mask[item, 1 : 1 + len(some)] = True
            rows[item, 1 : 1 + len(some)] = some
        states = np.where(mask, numbers[:, None], 2000)[:, :, None].astype(np.float32)
        return Encoded(
            table[numbers].astype(np.float32),
            mask,
            rows if fragments else None,
            states if self.logits is not None else None,
        )


def _number(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.array([row[own][0, 0] for row, own in zip(states, mask, strict=True)]).astype(int)


def units(rng: np.random.Generator, *shape: int) -> np.ndarray:
    vectors = rng.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def made_up(seed: int = 0, images: int = len(COUNTS)) -> MadeUp:
    """A model of all abilities whose opinions are unrelated to each other, and none of them good."""
    rng = np.random.default_rng(seed)
    captions = len(IMAGE_OF)
    return MadeUp(
        texts=units(rng, captions, 12),
        images=units(rng, images, 12),
        text_fragments=[units(rng, rng.integers(1, 6), 4).astype(np.float16) for _ in range(captions)],
        image_fragments=[units(rng, 5, 4).astype(np.float16) for _ in range(images)],
        logits=rng.standard_normal((captions, images)).astype(np.float32),
    )


def records(broken: frozenset[int] = frozenset(), lang: str = "en") -> list[Record]:
    """Pictures with captions of all lengths, neither ascending nor descending."""
    numbers = [np.flatnonzero(image == IMAGE_OF) for image in range(len(COUNTS))]
    captions = [[f"{n} about {image}" + "!" * (7 * n % 10) for n in some] for image, some in enumerate(numbers)]
    return [record(image, some, lang=lang, broken=image in broken) for image, some in enumerate(captions)]
