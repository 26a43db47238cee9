"""The interface of losses, and the batch of encoded texts and images that they read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.bundle.model import Ability
from sightline.errors import ModelError
from sightline.losses.interaction import maxsim
from sightline.losses.precision import full
from sightline.models.heads import masked_mean
from sightline.models.retriever import EncodedTensors, Regions, Retriever, Tokens, TowerFeatures

Field = Literal["embedding", "fragments", "states", "pooled"]
Sides = Literal["texts", "images"]
_ABILITY_OF: dict[Field, Ability] = {"embedding": "embed", "fragments": "fragments"}
Scores = Literal["embedding", "fragments", "states"]
"""How a text and an image are compared: the cosine of one vector each, late interaction of their fragments, or the
cosine of the means of the matcher's inputs."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The encoder inputs of this process's own rows, for losses that hide parts of them and encode the rest.

    images: pixels, features of a frozen image tower, or regions.
    """

    tokens: Tokens
    images: Tensor | TowerFeatures | Regions


@dataclass(frozen=True, slots=True)
class Pairs:
    """A batch: texts [T, …] and images [I, …], and which of them belong together.

    text_ids [T] and image_ids [I] identify the image of each row: a text and an image with the same id are a positive
    pair, and never negatives of each other, however often the image occurs in the batch. The numbers of texts and
    images may differ, for example with five captions for each image.

    In distributed training, the batch spans all processes, and `own_texts` and `own_images` are the rows that this
    process computes the loss for. In a single process, these are all rows.

    also_positive: [T, I], bool: additional positives, such as another image with the same label; None if there are
    none.
    excluded: [T, I], bool: pairs that are neither positives nor negatives, such as an image with the same caption.
    teacher_scores: [T, I], float32, the teacher's score for every text and image, if there is a teacher.
    inputs: the encoder inputs of this process's own rows, if a loss needs them.
    """

    texts: EncodedTensors
    images: EncodedTensors
    text_ids: Tensor
    image_ids: Tensor
    own_texts: slice = field(default_factory=lambda: slice(None))
    own_images: slice = field(default_factory=lambda: slice(None))
    teacher_scores: Tensor | None = None
    inputs: Inputs | None = None
    also_positive: Tensor | None = None
    excluded: Tensor | None = None

    @property
    def own(self) -> Tensor:
        """A mask [T, I] of the pairs in which the text was written for the image."""
        return self.text_ids[:, None] == self.image_ids[None, :]

    @property
    def positive(self) -> Tensor:
        """A mask [T, I] of the pairs that belong together."""
        return self.own if self.also_positive is None else self.own | self.also_positive

    @property
    def negative(self) -> Tensor:
        """A mask [T, I] of the pairs that are negatives of each other."""
        return ~self.positive if self.excluded is None else ~(self.positive | self.excluded)

    def cosines(self) -> Tensor:
        """Return the cosine of every text with every image: [T, I], in float32 even under autocast."""
        texts, images = self.texts.embedding, self.images.embedding
        with torch.autocast(texts.device.type, enabled=False):
            return full(texts) @ full(images).T

    def state_cosines(self) -> Tensor:
        """Return the cosine of the mean state of every text with that of every image: [T, I], float32."""
        if self.texts.states is None or self.images.states is None:
            raise ModelError("this model has no states to compare", "Build it with a matcher.")
        with torch.autocast(self.text_ids.device.type, enabled=False):
            texts, images = (
                F.normalize(masked_mean(full(side.states), side.mask), dim=-1)  # type: ignore[arg-type]
                for side in (self.texts, self.images)
            )
            return texts @ images.T

    def late(self, chunk: int = 256) -> Tensor:
        """Return the late-interaction score of every text with every image: [T, I], float32 (see `maxsim`)."""
        texts, images = self.texts, self.images
        return maxsim(texts.fragments, texts.mask, images.fragments, images.mask, chunk)

    def scores(self, on: Scores) -> Tensor:
        """Return the similarity of every text and every image: [T, I], float32 (see `Scores`)."""
        if on == "states":
            return self.state_cosines()
        return self.cosines() if on == "embedding" else self.late()


class Loss(nn.Module, ABC):
    """A loss over a batch.

    It returns the contribution of this process's own rows: their sum divided by the count of all rows, so that the
    contributions of all processes add up to the loss that one process would compute for the whole batch. Random numbers
    are drawn from `generator` for the whole batch, the same in every process, before own rows are selected.
    """

    needs: frozenset[Field]
    """Fields of `EncodedTensors` through which gradients flow back to the encoders. Other fields are read detached."""
    sends_to: frozenset[Sides] = frozenset({"texts", "images"})
    """The sides whose fields receive these gradients."""
    needs_teacher: bool = False
    """Whether it reads `Pairs.teacher_scores`, which a teacher must provide."""
    needs_inputs: bool = False
    """Whether it reads `Pairs.inputs`, to run the encoders itself."""
    needs_features: bool = False
    """Whether `init_from_features` must be called once, before the first step."""
    trains_ability: bool = True
    """Whether the abilities it uses are ready for search after training; false if it only prepares for another loss."""
    trains_matcher: bool = False
    """Whether it trains `match`."""
    parts: Mapping[str, Tensor] = MappingProxyType({})
    """The components of the last loss, for the log: this process's contributions, without gradients."""

    @property
    def trains(self) -> frozenset[Ability]:
        """The abilities that this loss trains."""
        if not self.trains_ability:
            return frozenset()
        match: tuple[Ability, ...] = ("match",) if self.trains_matcher else ()
        return frozenset((*(_ABILITY_OF[field] for field in self.needs if field in _ABILITY_OF), *match))

    @property
    def learned_temperature(self) -> Tensor | None:
        """The learned temperature, for the log; None if the loss has none."""
        return None

    def fit(self, model: Retriever) -> None:
        """Create parameters whose shapes depend on the model; called before the optimiser is created."""

    def init_from_features(self, features: Tensor) -> None:
        """Initialise from frozen features of some fragments of the training images, [fragments, width]."""

    @abstractmethod
    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return the loss, a scalar in float32."""


def check_scores(loss: str, on: str) -> frozenset[Field]:
    """Check the `on` setting of a loss, and return the model output that it needs."""
    if on not in get_args(Scores):
        raise ModelError(f"{loss}.on cannot be {on!r}", f"Choose one of {', '.join(get_args(Scores))}.")
    return frozenset({on})  # type: ignore[arg-type]


def check_chunk(chunk: int) -> int:
    """Reject a negative `chunk`."""
    if chunk < 0:
        raise ModelError(f"chunk cannot be {chunk}", "Use a number of pairs, or 0 for all at once.")
    return chunk
