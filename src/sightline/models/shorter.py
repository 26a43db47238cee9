"""A model whose embeddings are truncated to their leading dimensions."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional as F

from sightline.bundle.model import Ability, Calibration
from sightline.errors import ModelError
from sightline.models.retriever import EncodedTensors, Regions, Retriever, Tokens, TowerFeatures


class ShorterEmbeddings(Retriever):
    """Wraps a model, keeping only the first `dim` dimensions of its embeddings, at unit length.

    Useful for a model that was trained for it (see `losses.Matryoshka`): in other models, the first dimensions are no
    better than the rest.
    """

    def __init__(self, model: Retriever, dim: int) -> None:
        super().__init__()
        if not 0 < dim < model.embedding_dim or "embed" not in model.abilities:
            raise ModelError(
                f"cannot shorten embeddings to {dim} dimensions: the model's have {model.embedding_dim}",
                "Use a smaller number.",
            )
        self.model, self._dim = model, dim
        self.preprocess, self.text_input, self.trained = model.preprocess, model.text_input, model.trained

    @property
    def abilities(self) -> frozenset[Ability]:
        """The abilities of the wrapped model."""
        return self.model.abilities

    @property
    def embedding_dim(self) -> int:
        """The width of the shorter embeddings."""
        return self._dim

    @property
    def grid(self) -> tuple[int, int] | None:
        """The grid of the wrapped model."""
        return self.model.grid

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The calibration of the wrapped model, except for embeddings, whose cosines change when they are shortened."""
        return {stage: found for stage, found in self.model.calibration.items() if stage != "embed"}

    @property
    def reads_pixels(self) -> bool:
        """Whether the wrapped model reads pixels."""
        return self.model.reads_pixels

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Return the features of the wrapped model."""
        return self.model.image_features(pixels)

    def encode_images(self, images: Tensor | TowerFeatures | Regions) -> EncodedTensors:
        """Encode images with the wrapped model, and shorten their embeddings."""
        return self._shortened(self.model.encode_images(images))

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Encode texts with the wrapped model, and shorten their embeddings."""
        return self._shortened(self.model.encode_texts(tokens))

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Match with the wrapped model."""
        return self.model.match(text_states, text_mask, image_states, image_mask)

    def word_cosines(self, text_states: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor | None:
        """Return the cosines of the wrapped model's matcher."""
        return self.model.word_cosines(text_states, image_states, image_mask)

    def parts(self) -> dict[str, nn.Module]:
        """Return the encoders of the wrapped model."""
        return self.model.parts()

    def _shortened(self, encoded: EncodedTensors) -> EncodedTensors:
        return encoded._replace(embedding=F.normalize(encoded.embedding[..., : self._dim], dim=-1))
