"""What a model makes of pictures and texts, as plain arrays: the common tongue of search, storage and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from sightline.errors import ModelError
from sightline.media import Preprocess

Ability = Literal["embed", "fragments", "match"]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of encoded items.

    embedding: [batch, dim], unit length.
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
        """Which of `embed`, `fragments` and `match` it has; `embed` is always among them."""
        ...

    @property
    def preprocess(self) -> Preprocess:
        """How its pictures are sized and normalised."""
        ...

    def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size]."""
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
