"""Encoded images and texts, as NumPy arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.arrays import BoolArray, Float32Array, FloatArray, Int64Array


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of encoded items.

    embedding: [batch, dim], unit length; [batch, 0] for a model without `embed`.
    mask: [batch, n], true for real fragments, false for padding.
    fragments: [batch, n, fragment_dim], unit length where the mask is true; None for a model without `fragments`.
    states: [batch, n, hidden], the input of `match`; None for a model without `match`.
    truncated: [batch], true for a text that exceeds the model's length limit; None for images.
    """

    embedding: Float32Array
    mask: BoolArray
    fragments: FloatArray | None = None
    states: FloatArray | None = None
    truncated: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.embedding)

    def taken(self, places: Int64Array) -> "Encoded":
        """Return the items at these indices, in that order."""
        return Encoded(
            self.embedding[places],
            self.mask[places],
            None if self.fragments is None else self.fragments[places],
            None if self.states is None else self.states[places],
            None if self.truncated is None else self.truncated[places],
        )

    def emptied(self) -> "Encoded":
        """Return a batch of no items, as the same model encodes it."""
        return self.taken(np.zeros(0, dtype=np.int64))

    def row(self, number: int) -> "Encoded":
        """Return one item of the batch, without padding."""
        own, real = slice(number, number + 1), self.mask[number]
        return Encoded(
            self.embedding[own],
            self.mask[own][:, real],
            None if self.fragments is None else self.fragments[own][:, real],
            None if self.states is None else self.states[own][:, real],
            None if self.truncated is None else self.truncated[own],
        )


def stacked(parts: Sequence[Encoded]) -> Encoded:
    """Concatenate separately encoded batches of one model, padded to the longest."""
    if len(parts) == 1:
        return parts[0]
    n = max(part.mask.shape[1] for part in parts)
    cut = [part.truncated for part in parts if part.truncated is not None]
    return Encoded(
        np.concatenate([part.embedding for part in parts]),
        np.concatenate([_padded(part.mask, n) for part in parts]),
        _stacked([part.fragments for part in parts], n),
        _stacked([part.states for part in parts], n),
        np.concatenate(cut) if cut else None,
    )


def _stacked(parts: list[FloatArray | None], n: int) -> FloatArray | None:
    padded = [_padded(part, n) for part in parts if part is not None]
    return np.concatenate(padded) if padded else None


def _padded(values: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Pad [batch, words, …] with zeros to [batch, n, …]."""
    return np.pad(values, [(0, 0), (0, n - values.shape[1])] + [(0, 0)] * (values.ndim - 2))


def by_length(mask: BoolArray, encode: Callable[[Int64Array, int], Encoded]) -> Encoded:
    """Encode items of equal length together, by calling `encode` with their indices and length; mask: [batch, n]."""
    lengths = mask.sum(axis=1)
    # Not np.unique: its first call imports numpy.ma, which takes longer than encoding a text.
    alike = {length: np.flatnonzero(lengths == length) for length in sorted(set(lengths.tolist()))}
    together = stacked([encode(places, length) for length, places in alike.items()])
    return together.taken(np.argsort(np.concatenate(list(alike.values()))))


@dataclass(frozen=True, slots=True)
class CodeAttention:
    """What each code of a model attends to in a text and in an image, as fractions of the code's total attention.

    to_tokens: [codes, tokens], for the codes of the text; to_parts: [codes, rows, columns], for the codes of the image.
    The remainder, up to 1, goes to other codes and, in an image, to the class token.
    """

    to_tokens: Float32Array
    to_parts: Float32Array
