"""Explain a result: how similar each word of a query, or each code of a model, is to each part of the image."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sightline.arrays import Float32Array
from sightline.bundle.encoded import CodeAttention, Encoded
from sightline.bundle.model import Model
from sightline.bundle.tokenizer import Tokenizer, Word
from sightline.errors import ModelError, QueryError
from sightline.languages.letters import plain_letters
from sightline.media import ImageSource, Preprocess, open_image, require_pixels, to_pixels
from sightline.media.frame import Box
from sightline.retrieval.query import check_readable
from sightline.stores.base import Part, RefinableStore, Store
from sightline.unicode_text import as_unicode

_PARTS: tuple[Part, ...] = ("fragments", "states")


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word in a query, its position, and its cosine with each part of the image [rows, columns].

    score: the highest cosine.
    """

    word: str
    start: int
    end: int
    score: float
    grid: Float32Array

    def to_json(self) -> dict[str, Any]:
        """Return the word as JSON, as sent by the server."""
        place = {"word": self.word, "start": self.start, "end": self.end}
        return {**place, "score": round(self.score, 4), "grid": _rounded(self.grid)}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The words of a text compared with the parts of an image. box: the area that the grid covers; see `seen_box`."""

    text: str
    image: ImageSource
    words: tuple[WordMatch, ...]
    box: Box

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `sightline explain --json` prints."""
        rows, columns = self.words[0].grid.shape
        return {
            "query": self.text,
            "picture": as_unicode(self.image.name),
            "rows": rows,
            "columns": columns,
            "box": _box_json(self.box),
            "words": [word.to_json() for word in self.words],
        }

    def __str__(self) -> str:
        """Return one line with the score of each word."""
        return ", ".join(f"{word.word} {word.score:.2f}" for word in self.words)


def explain_image(
    text: str, image: ImageSource, model: Model, encoded: Encoded | None = None, encoder: Model | None = None
) -> Explanation:
    """Compare the words of a text with the parts of an image.

    encoded: the encoded image, if a store has it; see `stored_image`.
    encoder: the variant of the model that encoded it; see `image_encoder`.
    """
    text = _readable(text)
    preprocess = require_pixels((encoder or model).preprocess)
    width, height = open_image(image).size
    if encoded is None:
        encoded = model.encode_images(to_pixels(image, preprocess)[None])
    words = explain(text, model.encode_texts([text]), model, encoded, encoder)
    return Explanation(text, image, tuple(words), seen_box(preprocess, width, height))


def stored_image(store: Store, id: int) -> Encoded:
    """Return the encoding of an image's parts, as kept in a store."""
    ids = np.array([id], dtype=np.int64)
    kept = {part: store.fetch(ids, part) for part in _PARTS if getattr(store.shape, part)}
    mask = next((one.mask for one in kept.values()), np.zeros((1, 0), dtype=np.bool_))
    values = {part: one.values for part, one in kept.items()}
    return Encoded(np.zeros((1, 0), dtype=np.float32), mask, values.get("fragments"), values.get("states"))


def image_encoder(store: Store, id: int, model: Model) -> Model:
    """Return the variant of a model that encoded an item of a store: its fast one, or the model itself."""
    is_fast = isinstance(store, RefinableStore) and len(store.fast_ids(np.array([id])))
    return (model.fast_variant() if is_fast else None) or model


def explain(text: str, encoded: Encoded, model: Model, image: Encoded, encoder: Model | None = None) -> list[WordMatch]:
    """Compare the words of an encoded text with the parts of an encoded image.

    The cosines are those of the matcher or, if it does not use cosines, those of late interaction.
    Parts outside the model's grid are ignored. The cosine of a word with a part is the highest among the word's tokens.

    encoder: the variant of the model that encoded the image; see `image_encoder`.
    """
    found, grid = _cosines(encoded, model, image), (encoder or model).grid
    if found is None or grid is None:
        raise ModelError(f"{model.name} encodes no parts of an image, so it cannot explain one", "Use another model.")
    rows, columns = grid
    if found.shape[1] < rows * columns:
        raise ModelError(f"{model.name} has a grid of {rows} x {columns}, but the image has {found.shape[1]} parts")
    words = _words(text, model.tokenizer)
    cosines = np.clip(found[:, : rows * columns], -1, 1).reshape(-1, rows, columns)
    grids = [cosines[list(word.rows)].max(axis=0) for word in words]
    return [
        WordMatch(text[word.start : word.end], word.start, word.end, float(grid.max()), grid)
        for word, grid in zip(words, grids, strict=True)
    ]


def _cosines(text: Encoded, model: Model, image: Encoded) -> Float32Array | None:
    """Return the cosines [tokens, parts] of the first text with the first image; None if the model has none."""
    if text.states is not None and image.states is not None:
        related = model.word_cosines(text.states[:1], text.mask[:1], image.states[:1], image.mask[:1])
        if related is not None:
            own: Float32Array = related[0][:, image.mask[0]]
            return own
    if text.fragments is None or image.fragments is None:
        return None
    found: Float32Array = text.fragments[0].astype(np.float32) @ image.fragments[0][image.mask[0]].astype(np.float32).T
    return found


@runtime_checkable
class HasCodes(Protocol):
    """A model that reports what its codes attend to: a checkpoint in torch.

    Codes are learned vectors that enter an encoder together with an item's words or patches (paper 3, section 4.1).
    """

    tokenizer: Tokenizer

    def code_attention(self, text: str, pixels: Float32Array) -> CodeAttention:
        """Return what its codes attend to in a text and in normalised pixels [1, 3, size, size]."""
        ...


@dataclass(frozen=True, slots=True)
class CodesExplained:
    """What each code attends to, as fractions of the code's total attention.

    to_words: [codes, words], for the text's codes; to_parts: [codes, rows, columns], for the image's. The remainder, up
    to 1, goes to other codes and to special tokens. box: see `seen_box`.
    """

    text: str
    image: ImageSource
    words: tuple[str, ...]
    to_words: Float32Array
    to_parts: Float32Array
    box: Box

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `sightline explain --codes --json` prints."""
        return {
            "query": self.text,
            "picture": as_unicode(self.image.name),
            "words": list(self.words),
            "box": _box_json(self.box),
            "text_codes": _rounded(self.to_words),
            "image_codes": _rounded(self.to_parts),
        }

    def __str__(self) -> str:
        """Return one line with the fraction of attention that codes pay to words and to parts of the image."""
        words, parts = (float(shares.sum() / len(shares)) for shares in (self.to_words, self.to_parts))
        return f"{len(self.to_words)} codes, {words:.0%} of their attention to words, {parts:.0%} to parts of the image"


def explain_codes(text: str, image: ImageSource, model: Model) -> CodesExplained:
    """Compute what a model's codes attend to in a text and an image; attention to a word is the sum over its tokens."""
    if not isinstance(model, HasCodes):
        raise ModelError(
            f"{model.name} does not report what its codes attend to", "Use the checkpoint that it was exported from."
        )
    text = _readable(text)
    words = _words(text, model.tokenizer)
    preprocess = require_pixels(model.preprocess)
    width, height = open_image(image).size
    found = model.code_attention(text, to_pixels(image, preprocess)[None])
    to_words = np.stack([found.to_tokens[:, list(word.rows)].sum(axis=1) for word in words], axis=1)
    spelled = tuple(text[word.start : word.end] for word in words)
    return CodesExplained(text, image, spelled, to_words, found.to_parts, seen_box(preprocess, width, height))


def seen_box(preprocess: Preprocess, width: int, height: int) -> Box:
    """Return the box that the model sees: left, top, right and bottom, as fractions of the image's width and height.

    If the model crops, the box lies inside the image; if it pads, the image lies inside the box.

    >>> seen_box(Preprocess(224, resize="crop", mean=(0, 0, 0), std=(1, 1, 1)), 400, 200)
    (0.25, 0.0, 0.75, 1.0)
    >>> seen_box(Preprocess(224, resize="crop", mean=(0, 0, 0), std=(1, 1, 1), short=256), 400, 200)
    (0.28125, 0.0625, 0.71875, 0.9375)
    """
    if preprocess.resize == "squash":
        return 0.0, 0.0, 1.0, 1.0
    if preprocess.resize == "crop":
        side = min(width, height) * preprocess.size / (preprocess.short or preprocess.size)
    else:
        side = max(width, height)
    across, down = side / width / 2, side / height / 2
    return 0.5 - across, 0.5 - down, 0.5 + across, 0.5 + down


def _readable(text: str) -> str:
    """Return a text with plain letters, as models read it."""
    check_readable(text)
    return plain_letters(text)


def _words(text: str, tokenizer: Tokenizer) -> list[Word]:
    words = tokenizer.words(text)
    if not words:
        raise QueryError("the query has no words to explain", "Add some words.")
    return words


def _box_json(box: Box) -> dict[str, float]:
    return dict(zip(("left", "top", "right", "bottom"), box, strict=True))


def _rounded(numbers: Float32Array) -> Any:
    return np.round(numbers.astype(np.float64), 4).tolist()
