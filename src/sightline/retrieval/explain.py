"""Why an image was found: for every word of a query, how much it resembles each part of the picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.arrays import FloatArray
from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Model
from sightline.bundle.tokenizer import Word
from sightline.errors import ModelError, QueryError
from sightline.media import ImageSource, Preprocess, open_image, require_pixels, to_pixels
from sightline.media.frame import Box
from sightline.retrieval.query import check_readable

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word of a query, where it stands there, and its cosine with each part of the picture [rows, columns].

    score: the highest of them, which is what late interaction counts for the word.
    """

    word: str
    start: int
    end: int
    score: float
    grid: Singles

    def to_json(self) -> dict[str, Any]:
        """What the server sends of it."""
        return {
            "word": self.word,
            "start": self.start,
            "end": self.end,
            "score": round(self.score, 4),
            "grid": [[round(float(cosine), 4) for cosine in row] for row in self.grid],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The words of a text beside the parts of a picture; `box` is what the grid covers of it, as `seen_box` says."""

    text: str
    picture: ImageSource
    words: tuple[WordMatch, ...]
    box: Box

    def to_json(self) -> dict[str, Any]:
        """What `sightline explain --json` writes."""
        rows, columns = self.words[0].grid.shape
        return {
            "query": self.text,
            "picture": self.picture.name,
            "rows": rows,
            "columns": columns,
            "box": dict(zip(("left", "top", "right", "bottom"), self.box, strict=True)),
            "words": [word.to_json() for word in self.words],
        }

    def __str__(self) -> str:
        """In a line, how well each word was found."""
        return ", ".join(f"{word.word} {word.score:.2f}" for word in self.words)


def explain_picture(text: str, picture: ImageSource, model: Model, fragments: FloatArray | None = None) -> Explanation:
    """Compare the words of a text with the parts of a picture.

    fragments: the picture's, [parts, dim], where they are stored; else the picture is encoded.
    """
    check_readable(text)
    preprocess = require_pixels(model.preprocess)
    width, height = open_image(picture).size
    if fragments is None:
        encoded = model.encode_images(to_pixels(picture, preprocess)[None])
        fragments = np.empty((0, 0), np.float32) if encoded.fragments is None else encoded.fragments[0][encoded.mask[0]]
    words = explain(text, model.encode_texts([text]), model, fragments)
    return Explanation(text, picture, tuple(words), seen_box(preprocess, width, height))


def explain(text: str, encoded: Encoded, model: Model, fragments: FloatArray) -> list[WordMatch]:
    """Compare the words of a text with the parts of a picture.

    encoded: what the model made of the text, alone. fragments: of the picture, [parts, dim], as they are stored; those
    beyond the grid belong to no part of it, and are left out.

    A word of several tokens is as much alike a part as the most alike of its tokens.
    """
    if encoded.fragments is None or model.grid is None:
        raise ModelError(f"{model.name} does not tell the parts of a picture apart", "Search with another model.")
    rows, columns = model.grid
    if len(fragments) < rows * columns:
        raise ModelError(f"{model.name} has a grid of {rows} x {columns}, and the picture {len(fragments)} parts")
    words = model.tokenizer.words(text)
    if not words:
        raise QueryError("the query has no words to explain", "Give some words.")
    parts = fragments[: rows * columns].astype(np.float32)
    cosines = np.clip(encoded.fragments[0].astype(np.float32) @ parts.T, -1, 1)
    return _matches(text, words, cosines.reshape(-1, rows, columns))


def _matches(text: str, words: Sequence[Word], cosines: Singles) -> list[WordMatch]:
    grids = [cosines[list(word.rows)].max(axis=0) for word in words]
    return [
        WordMatch(text[word.start : word.end], word.start, word.end, float(grid.max()), grid)
        for word, grid in zip(words, grids, strict=True)
    ]


def seen_box(preprocess: Preprocess, width: int, height: int) -> Box:
    """The box of a picture that the grid covers: left, top, right and bottom, as shares of its width and height.

    Where a model crops, the box lies inside the picture; where it pads, the picture lies inside the box.

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
