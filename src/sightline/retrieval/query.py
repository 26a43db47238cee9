"""A query, and its encoding by a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Model
from sightline.errors import OptionError, QueryError
from sightline.media import ImageSource, to_input

ItemKind = Literal["images", "texts"]
Encode = Callable[["Query", Model, ItemKind], "EncodedQuery"]


@dataclass(frozen=True, slots=True)
class Query:
    """A text, an image, or both; with both, `image_weight`, from 0 to 1, is the weight of the image.

    without: texts that describe what a result should not show.
    """

    text: str | None = None
    image: ImageSource | None = None
    image_weight: float = 0.5
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the text, or the name of the image."""
        return self.text if self.text is not None else self.image.name if self.image else ""


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """The vectors of a query.

    vector: [dim], unit length; the first stage compares every item with it.
    across: the part of the query whose modality differs from that of the items: the text for images, the image for
        texts. Only this part can be matched with the items. None if there is no such part.
    beside: [dim], the other part of a query with both text and image, scaled by its weight relative to `across`; None
        if there is only one part.
    without: [n, dim], unit length; the unwanted content. unwanted: [n], the same as texts.
    truncated: whether the text exceeds the model's length limit.
    text: the text of the query; empty if there is none.
    """

    vector: Float32Array
    across: Encoded | None
    beside: Float32Array | None
    without: Float32Array
    truncated: bool = False
    text: str = ""
    unwanted: tuple[str, ...] = ()


def check_readable(words: object) -> None:
    """Reject what is not a text, and text with bytes that are not UTF-8, which a shell may pass on."""
    if not isinstance(words, str):
        raise OptionError("text", f"must be a string, not {words!r}")
    try:
        words.encode()
    except UnicodeEncodeError as error:
        shown = words.encode("utf-8", "replace").decode()
        raise QueryError(f"{shown!r} is not valid UTF-8", "Check the encoding of your terminal.") from error


def encode(query: Query, model: Model, kind: ItemKind) -> EncodedQuery:
    """Encode a query for searching items of this kind."""
    words = None if query.text is None else model.encode_texts([query.text])
    image = None if query.image is None else model.encode_images(to_input(query.image, model.preprocess)[None])
    cut = words is not None and words.truncated is not None and bool(words.truncated[0])
    across, along = (words, image) if kind == "images" else (image, words)
    weight = query.image_weight if kind == "images" else 1 - query.image_weight
    vector, beside = _joined(across, along, weight)
    without = np.empty((0, len(vector)), dtype=np.float32)
    if query.without:
        without = model.encode_texts(query.without).embedding
    return EncodedQuery(vector, across, beside, without, cut, query.text or "", query.without)


class EncodeOnce:
    """Encodes each query only once: for a search that asks for the same one in several collections."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[EncodedQuery, Model]] = {}

    def __call__(self, query: Query, model: Model, kind: ItemKind) -> EncodedQuery:
        """Return the encoding of a query, whose image must be the same object every time."""
        key = id(model), kind, query.text, id(query.image), query.image_weight, query.without
        if key not in self._known:
            self._known[key] = encode(query, model, kind), model  # kept, so that its id is not used again
        return self._known[key][0]


def encode_together(texts: Sequence[str], model: Model, kind: ItemKind) -> list[EncodedQuery]:
    """Encode text-only queries in one batch."""
    words = model.encode_texts(texts)
    without = np.empty((0, words.embedding.shape[1]), dtype=np.float32)
    cut = np.zeros(len(words), dtype=np.bool_) if words.truncated is None else words.truncated
    return [
        EncodedQuery(vector, words.row(row) if kind == "images" else None, None, without, bool(cut[row]), texts[row])
        for row, vector in enumerate(words.embedding)
    ]


def _joined(across: Encoded | None, along: Encoded | None, weight: float) -> tuple[Float32Array, Float32Array | None]:
    """Return the search vector, and the weighted contribution of the part in the items' own modality."""
    if across is None or along is None:
        (only,) = [part for part in (across, along) if part is not None]
        return only.embedding[0], None
    one, other = across.embedding[0], along.embedding[0]
    both = (1 - weight) * one + weight * other
    length = np.linalg.norm(both)
    vector = (both / length).astype(np.float32) if length >= 1e-6 else one  # the parts may cancel out
    return vector, other * (weight / (1 - weight))
