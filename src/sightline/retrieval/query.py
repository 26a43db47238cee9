"""What is asked for: words, a picture or both, and what is not wanted; and what a model makes of it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Model
from sightline.errors import QueryError
from sightline.media import ImageBytes, ImageFile, ImageSource, to_input

Singles = npt.NDArray[np.float32]
Kind = Literal["images", "texts"]
Picture = str | os.PathLike[str] | bytes | ImageSource
"""A picture as a user gives it: a path, the bytes of a file, or any source of them."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question: words, a picture, or both with the picture counting for `image_weight`, from 0 to 1.

    without: what a result should not show, each in words.
    """

    text: str | None = None
    image: ImageSource | None = None
    image_weight: float = 0.5
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The words of it, or what its picture is called."""
        return self.text if self.text is not None else self.image.name if self.image else ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the vectors that answers are sought by.

    vector: [dim], unit length; what the first stage compares every item with.
    across: the part of the question that is of another kind than the items, the words for pictures and the picture for
        texts; only it can be matched with them. None where there is no such part.
    beside: [dim], the other part of a question that has both, as long as it counts compared to `across`; else None.
    without: [n, dim], unit length; what is not wanted.
    truncated: whether the words were longer than the model reads.
    """

    vector: Singles
    across: Encoded | None
    beside: Singles | None
    without: Singles
    truncated: bool = False


def ask(
    text: str | None = None,
    image: Picture | None = None,
    image_weight: float = 0.5,
    without: str | Sequence[str] = (),
) -> Query:
    """Check what a user asks, before any model is opened. At the ends of its range a weight leaves one part out.

    >>> ask("a dog", without="snow").without
    ('snow',)
    """
    unwanted = (without,) if isinstance(without, str) else tuple(without)
    text = text if text is None or text.strip() else None
    if text is None and image is None:
        raise QueryError("nothing is asked for", "Give some words, a picture, or both.")
    for words in (text or "", *unwanted):
        check_readable(words)
    if not all(words.strip() for words in unwanted):
        raise QueryError("what is not wanted is empty", "Say it in words, or leave it out.")
    if not 0 <= image_weight <= 1:
        raise QueryError(f"image weight {image_weight}", "Give a number from 0 (words alone) to 1 (picture alone).")
    query = Query(text, None if image is None else _source(image), image_weight, unwanted)
    if text is not None and query.image is not None and image_weight in (0, 1):
        return replace(query, image=None) if image_weight == 0 else replace(query, text=None)
    return query


def check_readable(words: str) -> None:
    """Refuse bytes that are no text, which a shell may pass on: no model reads them."""
    try:
        words.encode()
    except UnicodeEncodeError as error:
        shown = words.encode("utf-8", "replace").decode()
        raise QueryError(f"{shown!r} is no readable text", "Write it in UTF-8, as most terminals do.") from error


def encode(query: Query, model: Model, kind: Kind) -> Asked:
    """Turn a question into vectors, for items of a kind."""
    words = None if query.text is None else model.encode_texts([query.text])
    picture = None if query.image is None else model.encode_images(to_input(query.image, model.preprocess)[None])
    cut = words is not None and words.truncated is not None and bool(words.truncated[0])
    across, along = (words, picture) if kind == "images" else (picture, words)
    weight = query.image_weight if kind == "images" else 1 - query.image_weight
    vector, beside = _joined(across, along, weight)
    without = np.empty((0, len(vector)), dtype=np.float32)
    if query.without:
        without = model.encode_texts(query.without).embedding
    return Asked(vector, across, beside, without, cut)


def encode_together(queries: Sequence[Query], model: Model, kind: Kind) -> list[Asked]:
    """Turn questions of nothing but words into vectors, all in one batch; for models whose texts do not mix in one."""
    words = model.encode_texts([query.text or "" for query in queries])
    without = np.empty((0, words.embedding.shape[1]), dtype=np.float32)
    cut = np.zeros(len(words), dtype=np.bool_) if words.truncated is None else words.truncated
    return [
        Asked(vector, words.row(row) if kind == "images" else None, None, without, bool(cut[row]))
        for row, vector in enumerate(words.embedding)
    ]


def _joined(across: Encoded | None, along: Encoded | None, weight: float) -> tuple[Singles, Singles | None]:
    """The vector to search by, and what the part of the items' own kind, with its weight, adds to the other part."""
    if across is None or along is None:
        (only,) = [part for part in (across, along) if part is not None]
        return only.embedding[0], None
    return _blended(across.embedding[0], along.embedding[0], weight), along.embedding[0] * (weight / (1 - weight))


def _blended(one: Singles, other: Singles, weight: float) -> Singles:
    """The weighted sum of two unit vectors, of unit length again; where they cancel each other out, the first."""
    both = (1 - weight) * one + weight * other
    length = np.linalg.norm(both)
    if length < 1e-6:
        return one
    blended: Singles = (both / length).astype(np.float32)
    return blended


def _source(image: Picture) -> ImageSource:
    if isinstance(image, bytes):
        return ImageBytes("the picture", image)
    if isinstance(image, str | os.PathLike):
        return ImageFile(Path(image))
    if not hasattr(image, "read"):
        raise QueryError(f"a picture as {type(image).__name__}", "Give a path, the bytes of a file, or an ImageSource.")
    return image
