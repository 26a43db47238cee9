"""The interface of every trainable model: encode images, encode texts, match the two."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sightline.bundle.model import Ability, Calibration
from sightline.media import ImageInput, RegionConfig


class EncodedTensors(NamedTuple):
    """A batch of encoded items, like `sightline.bundle.Encoded` but with tensors that carry gradients.

    embedding: [batch, dim], unit length unless the model has `unit_length = false`; [batch, 0] without `embed`.
    fragments: [batch, n, fragment_dim], unit length, including padding (the mask tells which are real);
    [batch, n, 0] for a model without `fragments`.
    mask: [batch, n], true for real fragments. In a model with codes, the last true positions are its codes.
    states: [batch, n, hidden], the input of `match`; None for a model without `match`. An item has as many
    states as fragments; `match` ignores those of codes.
    pooled: [batch, width], the vector that the embedding is a projection of, such as the state of [CLS]; None if there
    is no such vector.
    """

    embedding: Tensor
    fragments: Tensor
    mask: Tensor
    states: Tensor | None
    pooled: Tensor | None = None


class Tokens(NamedTuple):
    """A batch of tokenised texts: ids [batch, n] and mask [batch, n], true for real tokens."""

    ids: Tensor
    mask: Tensor


class TowerFeatures(NamedTuple):
    """The output of an image tower: pooled [batch, hidden] and patches [batch, n, hidden].

    Patches are those of the grid, row by row, or clusters of them, followed by the tower's codes, if any.
    below: the same patches at an earlier layer of the tower, if the model needs them.
    """

    pooled: Tensor
    patches: Tensor
    below: Tensor | None = None


class Regions(NamedTuple):
    """A batch of detected regions.

    features: [batch, n, dim]; boxes: [batch, n, 6 or 7, or 0], relative to the image; mask: [batch, n].
    """

    features: Tensor
    boxes: Tensor
    mask: Tensor

    @classmethod
    def of(cls, regions: Tensor, mask: Tensor, config: RegionConfig) -> "Regions":
        """Split concatenated features and boxes, [batch, n, width], as returned by `media.stack_inputs`."""
        return cls(regions[..., : config.feature_dim], regions[..., config.feature_dim :], mask)


@dataclass(frozen=True, slots=True)
class TextInput:
    """The texts that a model reads.

    max_length: the maximum number of tokens; longer texts are truncated.
    languages: those of its training texts.
    """

    max_length: int = 32
    languages: tuple[str, ...] = ("en",)


class Retriever(nn.Module, ABC):
    """A model with up to three abilities: `embed`, `fragments` and `match`.

    In every architecture, an item is encoded on its own, once, and its `EncodedTensors` contain everything that later
    stages need. Padding never changes an output.
    """

    preprocess: ImageInput
    text_input: TextInput
    trained: frozenset[Ability] | None = None
    """The abilities that were trained; None if that is unknown, and all abilities of the architecture are offered."""

    @property
    @abstractmethod
    def abilities(self) -> frozenset[Ability]:
        """The trained abilities of the model."""

    @property
    def initially_trained(self) -> frozenset[Ability]:
        """The abilities that the initial weights have."""
        return frozenset()

    @property
    def initial_temperature(self) -> float | None:
        """The temperature of the contrastive loss that the initial weights were trained with; None if unknown."""
        return None

    def _offered(self, *abilities: Ability) -> frozenset[Ability]:
        """Return the given abilities, without those that were not trained."""
        return frozenset(abilities) if self.trained is None else self.trained.intersection(abilities)

    @property
    def unit_length(self) -> bool:
        """Whether embeddings have unit length."""
        return True

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """The width of the embeddings."""

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's first fragments, before codes; None if they form no grid."""

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The mapping of scores to probabilities, by stage, if the model has learned it."""
        return {}

    @property
    def reads_pixels(self) -> bool:
        """Whether the model reads pixels, and not detected regions."""
        return True

    @abstractmethod
    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Run the image tower alone on pixels [batch, 3, size, size]; the output of a frozen tower can be cached."""

    @abstractmethod
    def encode_images(self, images: Tensor | TowerFeatures | Regions) -> EncodedTensors:
        """Encode pixels [batch, 3, size, size], features of the image tower, or regions."""

    @abstractmethod
    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Encode tokenised texts."""

    @abstractmethod
    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch] that text i and image i belong together.

        text_states: [batch, words, hidden]; image_states: [batch, fragments, hidden]; masks: [batch, n], bool.
        """

    def match_all(
        self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor, chunk: int = 4096
    ) -> Tensor:
        """Return the logits [texts, images], float32, that each text belongs to each image; for pairs, see `match`.

        About `chunk` pairs are matched at a time. Short texts come first, and each chunk is cut to its longest text:
        most of a batch of captions is padding.
        """
        places = torch.arange(1, text_mask.shape[1] + 1, device=text_mask.device)
        ends, order = (text_mask * places).amax(1).sort()
        longest = ends.tolist()  # all at once, because reading a number from a GPU waits for it
        logits = torch.empty(len(order), len(image_mask), device=text_mask.device)
        step = max(1, chunk // len(image_mask))
        for start in range(0, len(order), step):
            some = order[start : start + step]
            end = longest[start + len(some) - 1]
            texts = text_states[some, :end], text_mask[some, :end]
            logits[some] = self._match_all(*texts, image_states, image_mask).float()
        return logits

    def _match_all(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [texts, images] of a chunk; for models that can do better than to match pair by pair."""
        texts, images = len(text_states), len(image_states)
        pairs = torch.arange(texts * images, device=text_states.device)
        text, image = pairs // images, pairs % images
        return self.match(text_states[text], text_mask[text], image_states[image], image_mask[image]).view(texts, -1)

    def word_cosines(self, text_states: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor | None:
        """Return the matcher's cosines [batch, words, n] of words with parts of an image; None if it has none."""
        return None

    @abstractmethod
    def parts(self) -> dict[str, nn.Module]:
        """Return the transformers encoders, by their folder in a checkpoint."""
