"""The Matryoshka loss: embeddings that can be truncated."""

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.base import Pairs
from sightline.losses.contrastive import Contrastive, info_nce
from sightline.models.retriever import Retriever


class Matryoshka(Contrastive):
    """The contrastive loss of full embeddings and of their leading dimensions (Kusupati et al. 2022, equation 1).

        L = mean over d in (dims and the full length) of InfoNCE( e[:d] / |e[:d]| )

    The first 128 of 512 dimensions, for example, are then an embedding by themselves, which
    `sightline export --dim 128` keeps.

    dims: the lengths to train besides the full one; each must be below the model's `embedding_dim`.
    temperature, learn_temperature, max_scale, label_smoothing: as in `contrastive`; all lengths share one temperature.

    Reads the embeddings of both sides. Distributed: as in `contrastive`.

    >>> from sightline.models import EncodedTensors
    >>> def encoded(vectors):
    ...     return EncodedTensors(vectors, vectors[:, None], torch.ones(len(vectors), 1, dtype=torch.bool), None)
    >>> pairs = Pairs(encoded(torch.eye(3)), encoded(torch.eye(3)), torch.arange(3), torch.arange(3))
    >>> loss = Matryoshka(dims=(2,), temperature=1.0)(pairs, None, torch.Generator())  # the model is not used
    >>> loss.item() > Contrastive(temperature=1.0)(pairs, None, torch.Generator()).item()
    True
    """

    def __init__(
        self,
        dims: tuple[int, ...] = (64, 128),
        temperature: float | None = None,
        learn_temperature: bool = True,
        max_scale: float = 100.0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(temperature, learn_temperature, max_scale, label_smoothing)
        if not dims or min(dims) < 1 or len(set(dims)) < len(dims):
            raise ModelError(f"matryoshka.dims cannot be {list(dims)}", "Use distinct lengths of at least 1.")
        self.dims = dims

    def fit(self, model: Retriever) -> None:
        """Reject lengths that are not shorter than the model's embeddings."""
        super().fit(model)
        if max(self.dims) >= model.embedding_dim:
            raise ModelError(
                f"matryoshka.dims goes up to {max(self.dims)}, but embeddings have {model.embedding_dim} dimensions",
                "Use smaller values.",
            )

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean over all lengths."""
        scale, positive, negative = self.scale(), pairs.positive, pairs.negative
        texts, images = pairs.own_texts, pairs.own_images
        counts = [positive.any(side).sum().clamp(min=1) for side in (1, 0)]
        total = scale.new_zeros(())
        for dim in (*self.dims, pairs.texts.embedding.shape[-1]):
            logits = scale * cosines(pairs, dim)
            rows = info_nce(logits[texts], positive[texts], self.label_smoothing, negative[texts]).sum()
            columns = info_nce(logits.T[images], positive.T[images], self.label_smoothing, negative.T[images]).sum()
            total = total + 0.5 * (rows / counts[0] + columns / counts[1])
        return total / (len(self.dims) + 1)


def cosines(pairs: Pairs, dim: int) -> Tensor:
    """The cosine of every text and image in their first `dim` dimensions: [T, I], in float32 even under autocast."""
    texts, images = pairs.texts.embedding, pairs.images.embedding
    with torch.autocast(texts.device.type, enabled=False):
        return F.normalize(texts[:, :dim].float(), dim=-1) @ F.normalize(images[:, :dim].float(), dim=-1).T
