"""Students of a bundle: encoders with heads that produce the bundle's embedding, fragments and states."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from sightline.models.heads import masked_mean


class StudentOutput(NamedTuple):
    """The outputs of a bundle's graph: embedding [batch, dim], fragments [batch, n, dim] and states [batch, n, dim].

    Embeddings and fragments have unit length.
    """

    embedding: Tensor
    fragments: Tensor
    states: Tensor


class StudentShape(NamedTuple):
    """The widths of a bundle's embedding, fragments and states."""

    embedding: int
    fragments: int
    states: int


class Heads(nn.Module):
    """Turns an encoder's vectors, one per patch or word, into the three outputs."""

    def __init__(self, hidden: int, shape: StudentShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.embedding = nn.Linear(hidden, shape.embedding)
        self.fragments = nn.Linear(hidden, shape.fragments)
        self.states = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, shape.states))

    def forward(self, pooled: Tensor, parts: Tensor) -> StudentOutput:
        """Return the outputs for a pooled vector [batch, hidden] and parts [batch, n, hidden]."""
        read = self.norm(parts)
        embedding = F.normalize(self.embedding(self.norm(pooled)).float(), dim=-1)
        fragments = F.normalize(self.fragments(read).float(), dim=-1)
        return StudentOutput(embedding, fragments, self.states(read).float())


class PatchProduct(nn.Module):
    """A patch embedding as one matrix product, which, unlike a convolution, an int8 graph computes in int8."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.side = convolution.kernel_size[0]
        self.projection = nn.Linear(convolution.weight[0].numel(), convolution.out_channels)
        self.projection.weight = nn.Parameter(convolution.weight.detach().flatten(1).clone())
        if convolution.bias is not None:
            self.projection.bias = nn.Parameter(convolution.bias.detach().clone())

    def forward(self, pixels: Tensor, **unused: object) -> Tensor:
        """Return the vectors [batch, patches, width] of pixels [batch, 3, size, size]."""
        batch, channels, size, _ = pixels.shape
        count, side = size // self.side, self.side
        split = pixels.reshape(batch, channels, count, side, count, side).permute(0, 2, 4, 1, 3, 5)
        return self.projection(split.reshape(batch, count * count, channels * side * side))  # type: ignore[no-any-return]


class ImageStudent(nn.Module):
    """A ViT from transformers whose patches form the bundle's grid."""

    def __init__(self, encoder: PreTrainedModel, shape: StudentShape) -> None:
        super().__init__()
        self.encoder = encoder
        if not isinstance(encoder.embeddings.patch_embeddings, PatchProduct):
            encoder.embeddings.patch_embeddings = PatchProduct(encoder.embeddings.patch_embeddings.projection)
        self.heads = Heads(encoder.config.hidden_size, shape)

    def forward(self, pixels: Tensor) -> StudentOutput:
        """Encode normalised pixels [batch, 3, size, size]."""
        seen = self.encoder(pixel_values=pixels).last_hidden_state
        parts = seen[:, 1:]
        return self.heads(seen[:, 0] + parts.mean(1), parts)  # type: ignore[no-any-return]


class TextStudent(nn.Module):
    """A text encoder of transformers, such as a multilingual BERT."""

    def __init__(self, encoder: PreTrainedModel, shape: StudentShape) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = Heads(encoder.config.hidden_size, shape)

    def forward(self, ids: Tensor, mask: Tensor) -> StudentOutput:
        """Encode token ids [batch, n]; mask: true for real ones."""
        read = self.encoder(input_ids=ids, attention_mask=mask.to(torch.int64)).last_hidden_state
        return self.heads(masked_mean(read, mask), read)  # type: ignore[no-any-return]
