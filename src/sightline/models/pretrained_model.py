"""The base class of published models."""

from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sightline.bundle.model import Ability
from sightline.errors import ModelError
from sightline.media import ImageInput
from sightline.models.retriever import EncodedTensors, Regions, Retriever, TextInput, TowerFeatures
from sightline.models.towers import UNREADABLE, check_whole, lacking


class Pretrained(Retriever):
    """A published model with the interface of a retriever, and only the abilities that it was trained for.

    Missing outputs have width zero: a model without `fragments` returns fragments [batch, n, 0], one without `embed`
    returns embeddings [batch, 0].

    dim: the width of its embeddings.
    """

    has: ClassVar[frozenset[Ability]] = frozenset()
    model: PreTrainedModel

    def __init__(self, model: PreTrainedModel, preprocess: ImageInput, text_input: TextInput, dim: int = 0) -> None:
        super().__init__()
        self.model = model
        self.preprocess = preprocess
        self.text_input = text_input
        self._dim = dim

    @property
    def abilities(self) -> frozenset[Ability]:
        """The abilities that the model was trained for."""
        return self.has

    @property
    def embedding_dim(self) -> int:
        """The width of the embeddings; 0 if the model has none."""
        return self._dim

    @property
    def grid(self) -> tuple[int, int] | None:
        """Always None, because the model has no fragments."""
        return None

    def encode_images(self, images: Tensor | TowerFeatures | Regions) -> EncodedTensors:
        """Encode pixels [batch, 3, size, size], or features of the image side."""
        if isinstance(images, Regions):
            raise ModelError("this model reads pixels, not regions")
        return self.encode_seen(images if isinstance(images, TowerFeatures) else self.image_features(images))

    def encode_seen(self, seen: TowerFeatures) -> EncodedTensors:
        """Encode the features that `image_features` returned."""
        raise NotImplementedError

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch] that text i and image i belong together."""
        raise ModelError("this model has no matcher", "Leave out matching, or choose a model that has one.")

    def parts(self) -> dict[str, nn.Module]:
        """Return the whole published model."""
        return {"model": self.model}


def encoded(mask: Tensor, embedding: Tensor | None = None, states: Tensor | None = None) -> EncodedTensors:
    """Return encoded items without fragments: mask [batch, n], and an embedding [batch, dim], states, or both."""
    fragments = torch.zeros(*mask.shape, 0, device=mask.device)
    if embedding is None:
        embedding = torch.zeros(mask.shape[0], 0, device=mask.device)
    return EncodedTensors(embedding, fragments, mask, states)


def whole(values: Tensor) -> Tensor:
    """Return an all-true mask [batch, n] for values [batch, n, dim]."""
    return torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)


def hiding(mask: Tensor, values: Tensor) -> Tensor:
    """Return the additive attention mask that hides positions where mask [batch, n] is false.

    It has a row for every position, [batch, 1, n, n], although all rows are equal: ONNX Runtime requires it.
    """
    hidden = torch.zeros_like(mask, dtype=values.dtype).masked_fill(~mask, torch.finfo(values.dtype).min)
    return hidden[:, None, None, :].expand(-1, -1, mask.shape[1], -1)


def read_model(kind: type[PreTrainedModel], folder: Path) -> PreTrainedModel:
    """Load a transformers model in float32; the error for missing weights names them."""
    try:
        model, report = kind.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except UNREADABLE as error:
        raise ModelError(f"{folder}: cannot load a {kind.__name__} from it: {error}") from error
    check_whole(str(folder), kind.__name__, lacking(report))
    return model.eval()
