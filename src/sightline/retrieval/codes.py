"""What the codes of a model look at, among the words of a text and the parts of a picture: as data and as a drawing.

Codes are learned vectors that enter an encoder beside an item's words or patches (paper 3, section 4.1). Only a
checkpoint under torch tells its attention; all that is here is plain arrays.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.bundle.encoded import CodeAttention
from sightline.bundle.model import Model
from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import ModelError, QueryError
from sightline.media import ImageSource, open_image, require_pixels, to_pixels
from sightline.media.frame import Box
from sightline.retrieval.explain import Singles, WordMatch, seen_box
from sightline.retrieval.heat import bands, panels, sheet
from sightline.retrieval.query import check_readable

_PAPER = (255, 255, 255)


@runtime_checkable
class Attentive(Protocol):
    """A model that can tell what its codes attend to."""

    tokenizer: Tokenizer

    def code_attention(self, text: str, pixels: npt.NDArray[np.float32]) -> CodeAttention:
        """What its codes attend to in a text and in normalised pixels [1, 3, size, size]."""
        ...


@dataclass(frozen=True, slots=True)
class CodesExplained:
    """What each code attends to, as shares of all its attention.

    to_words: [codes, words], codes of the text side; to_parts: [codes, rows, columns], codes of the image side. What
    they lack to 1 goes to other codes, and to marks that are no word and no part. box: as `seen_box` says.
    """

    text: str
    picture: ImageSource
    words: tuple[str, ...]
    to_words: Singles
    to_parts: Singles
    box: Box

    def to_json(self) -> dict[str, Any]:
        """What `sightline explain --codes --json` writes."""
        return {
            "query": self.text,
            "picture": self.picture.name,
            "words": list(self.words),
            "box": dict(zip(("left", "top", "right", "bottom"), self.box, strict=True)),
            "text_codes": [_rounded(code) for code in self.to_words],
            "image_codes": [[_rounded(row) for row in code] for code in self.to_parts],
        }

    def __str__(self) -> str:
        """In a line, how much of their attention codes pay to the words and to the parts of the picture."""
        words, parts = (_percent(float(shares.sum() / len(shares))) for shares in (self.to_words, self.to_parts))
        return f"{len(self.to_words)} codes, {words} of their attention to words, {parts} to parts of the picture"


def explain_codes(text: str, picture: ImageSource, model: Model) -> CodesExplained:
    """Ask a model what its codes attend to in a text and in a picture. A word has the attention of all its tokens."""
    if not isinstance(model, Attentive):
        raise ModelError(
            f"{model.name} does not tell what its codes attend to", "Give the checkpoint that it was exported from."
        )
    check_readable(text)
    words = model.tokenizer.words(text)
    if not words:
        raise QueryError("the query has no words to explain", "Give some words.")
    preprocess = require_pixels(model.preprocess)
    width, height = open_image(picture).size
    found = model.code_attention(text, to_pixels(picture, preprocess)[None])
    to_words = np.zeros((len(found.to_tokens), len(words)), dtype=np.float32)
    for place, word in enumerate(words):
        to_words[:, place] = found.to_tokens[:, list(word.rows)].sum(axis=1)
    spelled = tuple(text[word.start : word.end] for word in words)
    return CodesExplained(text, picture, spelled, to_words, found.to_parts, seen_box(preprocess, width, height))


def draw(explained: CodesExplained) -> Image.Image:
    """Draw it: a picture for each code of the image side, and below them a row of words for each of the text side.

    In pictures, as with words, half of what all codes look at is taken away from each.
    """
    codes = [_as_word(number, grid) for number, grid in enumerate(explained.to_parts, 1)]
    labels = [("", ""), *((code.word, _percent(float(code.grid.sum()))) for code in codes)]
    above = sheet("What each code sees", panels(explained.picture, codes, explained.box), labels)
    told = [(f"code {row}", _percent(float(shares.sum()))) for row, shares in enumerate(explained.to_words, 1)]
    below = bands("What each code reads", explained.words, explained.to_words, told)
    paper = Image.new("RGB", (max(above.width, below.width), above.height + below.height), _PAPER)
    paper.paste(above, (0, 0))
    paper.paste(below, (0, above.height))
    return paper


def _as_word(number: int, grid: Singles) -> WordMatch:
    return WordMatch(f"code {number}", 0, 0, float(grid.max()), grid)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _rounded(shares: Singles) -> list[float]:
    return [round(float(share), 4) for share in shares]
