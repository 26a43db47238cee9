"""The interface of every trainable model: encode images, encode texts, match the two."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from sightline.bundle.model import Ability, Calibration
from sightline.media import ImageInput, RegionConfig


class EncodedTensors(NamedTuple):
    """A batch of encoded items, as `sightline.bundle.Encoded` but made of tensors that carry gradients.

    embedding: [batch, dim], unit length; [batch, 0] for a model without `embed`.
    fragments: [batch, n, fragment_dim], unit length (padding included: a mask, not a length, says what is real);
    [batch, n, 0] for a model without `fragments`.
    mask: [batch, n], true where a fragment is real. The last true places of a model with codes are its codes.
    states: [batch, n, hidden], what `match` needs of an item; None for a model without `match`. An item has as many
    states as fragments; `match` leaves out those of codes.
    """

    embedding: Tensor
    fragments: Tensor
    mask: Tensor
    states: Tensor | None


class Tokens(NamedTuple):
    """A batch of tokenised texts: ids [batch, n] and mask [batch, n], true where a token is real."""

    ids: Tensor
    mask: Tensor


class TowerFeatures(NamedTuple):
    """The output of an image tower: pooled [batch, hidden] and patches [batch, n, hidden].

    Patches are those of the grid, row by row, or clusters of them; and after them the tower's codes, if it has any.
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
        """Split features and boxes side by side, [batch, n, width], as `media.stack_inputs` gives them."""
        return cls(regions[..., : config.feature_dim], regions[..., config.feature_dim :], mask)


@dataclass(frozen=True, slots=True)
class TextInput:
    """Texts have at most `max_length` tokens; languages: those of the training texts."""

    max_length: int = 32
    languages: tuple[str, ...] = ("en",)


class Retriever(nn.Module, ABC):
    """A model with up to three abilities: `embed`, `fragments` and `match`.

    Whatever the architecture, an item is encoded on its own, once, and everything that later stages need of it is in
    its `EncodedTensors`. Padding never changes an output.
    """

    preprocess: ImageInput
    text_input: TextInput
    trained: frozenset[Ability] | None = None
    """The abilities that were trained; None if nothing says so, and all that the architecture has are offered."""

    @property
    @abstractmethod
    def abilities(self) -> frozenset[Ability]:
        """What this model can do: what its architecture has, as far as it was trained."""

    @property
    def initially_trained(self) -> frozenset[Ability]:
        """The abilities that the weights it was built from bring with them."""
        return frozenset()

    def _offered(self, *abilities: Ability) -> frozenset[Ability]:
        """Those of some abilities that were trained."""
        return frozenset(abilities) if self.trained is None else self.trained.intersection(abilities)

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """How wide its embeddings are."""

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's first fragments, codes follow; None where they are no grid."""

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """How scores become probabilities, by stage, where the model has learned that itself."""
        return {}

    @property
    def reads_pixels(self) -> bool:
        """Whether its images are pixels, and not detected regions."""
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
        """Logits [batch] that text i and image i belong together.

        text_states: [batch, words, hidden]; image_states: [batch, fragments, hidden]; masks: [batch, n], bool.
        """

    @abstractmethod
    def parts(self) -> dict[str, nn.Module]:
        """The transformers encoders inside, by the name of the checkpoint folder that keeps each of them."""
