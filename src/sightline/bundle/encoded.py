"""What a model makes of pictures and texts, as plain arrays: the common tongue of search, storage and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sightline.errors import ModelError
from sightline.media import ImageInput

Ability = Literal["embed", "fragments", "match"]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of encoded items.

    embedding: [batch, dim], unit length; [batch, 0] for a model without `embed`.
    mask: [batch, n], true where a fragment is real; padding is false and says nothing.
    fragments: [batch, n, fragment_dim], unit length where the mask is true; None for a model without `fragments`.
    states: [batch, n, hidden], what `match` needs of an item; None for a model without `match`.
    truncated: [batch], true for a text that was longer than the model reads; None for images.
    """

    embedding: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]
    fragments: Floats | None = None
    states: Floats | None = None
    truncated: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.embedding)

    def taken(self, places: npt.NDArray[np.int64]) -> "Encoded":
        """The items at some places, in that order."""
        return Encoded(
            self.embedding[places],
            self.mask[places],
            None if self.fragments is None else self.fragments[places],
            None if self.states is None else self.states[places],
            None if self.truncated is None else self.truncated[places],
        )

    def row(self, number: int) -> "Encoded":
        """One item of the batch, without the padding that the others made necessary."""
        own, real = slice(number, number + 1), self.mask[number]
        return Encoded(
            self.embedding[own],
            self.mask[own][:, real],
            None if self.fragments is None else self.fragments[own][:, real],
            None if self.states is None else self.states[own][:, real],
            None if self.truncated is None else self.truncated[own],
        )


def stacked(parts: Sequence[Encoded]) -> Encoded:
    """One batch of batches that were encoded apart, by one model, padded to the longest."""
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


def _stacked(parts: list[Floats | None], n: int) -> Floats | None:
    there = [_padded(part, n) for part in parts if part is not None]
    return np.concatenate(there) if there else None


def _padded(values: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Lengthen [batch, words, …] to [batch, n, …] with zeros."""
    return np.pad(values, [(0, 0), (0, n - values.shape[1])] + [(0, 0)] * (values.ndim - 2))


@dataclass(frozen=True, slots=True)
class CodeAttention:
    """What each code of a model attends to in one text and in one picture, as shares of all its attention.

    to_tokens: [codes, tokens], codes of the text side; to_parts: [codes, rows, columns], codes of the image side. What
    they lack to 1 goes to other codes and, in a picture, to what stands for the whole of it.
    """

    to_tokens: npt.NDArray[np.float32]
    to_parts: npt.NDArray[np.float32]


def check_ability(model: "Model", ability: Ability, asked: str, way_out: str) -> None:
    """Refuse what was `asked` of a model without this ability."""
    if ability not in model.abilities:
        there = ", ".join(sorted(model.abilities))
        raise ModelError(f"{asked} needs the ability {ability!r}, and {model.name} has only {there}", way_out)


class Model(Protocol):
    """A model ready for use, whichever engine runs it: an opened bundle, or a checkpoint under torch."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def sha256(self) -> str:
        """Tells it from every other model: vectors of two models that differ in this must never meet."""
        ...

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `embed`, `fragments` and `match` it has; without `embed` it can only be asked to match."""
        ...

    @property
    def preprocess(self) -> ImageInput:
        """How its pictures are sized and normalised; or what regions of them are like, where it reads those instead."""
        ...

    def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size]; or regions [batch, n, width], see `media.stack_inputs`."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode a batch of texts."""
        ...

    def match(
        self,
        text_states: Floats,
        text_mask: npt.NDArray[np.bool_],
        image_states: Floats,
        image_mask: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """Logit [batch] that text i and image i belong together; states [batch, n, hidden], masks [batch, n]."""
        ...
