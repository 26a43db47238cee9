"""Students of a bundle: encoders with heads that produce the bundle's embedding, fragments and states."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from sightline.models import towers
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


def resized_positions(positions: Tensor, rows: int) -> Tensor:
    """Interpolate a ViT's position embeddings [1, 1 + n, width] for a grid of rows × rows patches."""
    first, grid = positions[:, :1], positions[:, 1:]
    old = round(grid.shape[1] ** 0.5)
    square = grid.transpose(1, 2).reshape(1, -1, old, old)
    return torch.cat([first, F.interpolate(square, size=(rows, rows), mode="bicubic").flatten(2).transpose(1, 2)], 1)


def resized_projection(weight: Tensor, side: int) -> Tensor:
    """Resize the weight of a patch embedding, [width, 3 · n²], for other patches: [width, 3 · side²].

    If images are enlarged together with larger patches, their vectors stay the same (FlexiViT, Beyer et al. 2023).
    Smaller patches have the vectors of the original ones for images enlarged to them.
    """
    old = math.isqrt(weight.shape[1] // 3)
    if old == side:
        return weight
    small, large = sorted((old, side))
    one_hot = torch.eye(small * small, dtype=weight.dtype, device=weight.device).view(-1, 1, small, small)
    enlarged = F.interpolate(one_hot, size=(large, large), mode="bicubic").flatten(1)
    resize = enlarged.T if side < old else torch.linalg.pinv(enlarged.double()).T.to(weight)
    return (weight.view(-1, 3, old * old) @ resize).flatten(1)


def area_means(rows: int, cells: int) -> Tensor:
    """Return weights [cells², rows²] that average a grid of rows × rows into cells × cells of equal area.

    >>> area_means(3, 2)[0]  # the first cell covers the first row and column, and half of the second ones
    tensor([0.4444, 0.2222, 0.0000, 0.2222, 0.1111, 0.0000, 0.0000, 0.0000, 0.0000])
    """
    ends = torch.arange(rows + 1) / rows
    low, high = (torch.arange(cells) / cells)[:, None], (torch.arange(1, cells + 1) / cells)[:, None]
    shares = (torch.minimum(ends[1:], high) - torch.maximum(ends[:-1], low)).clamp(min=0) * cells
    return torch.kron(shares, shares)


class ImageStudent(nn.Module):
    """A ViT from transformers whose patches form the bundle's grid, or are averaged into it.

    size: the size of its images; 0 for that of the encoder. rows: the rows of the bundle's grid; 0 for the patches'.
    """

    def __init__(self, encoder: PreTrainedModel, shape: StudentShape, size: int = 0, rows: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        embeddings = encoder.embeddings
        if not isinstance(embeddings.patch_embeddings, PatchProduct):
            embeddings.patch_embeddings = PatchProduct(embeddings.patch_embeddings.projection)
        size = size or encoder.config.image_size
        encoder.config.image_size, embeddings.image_size = size, (size, size)
        own = size // embeddings.patch_embeddings.side
        if own**2 + 1 != embeddings.position_embeddings.shape[1]:
            positions = resized_positions(embeddings.position_embeddings.detach(), own)
            embeddings.position_embeddings = nn.Parameter(positions)
        self.register_buffer("averages", area_means(own, rows) if rows not in (0, own) else None, persistent=False)
        self.heads = Heads(encoder.config.hidden_size, shape)

    def forward(self, pixels: Tensor) -> StudentOutput:
        """Encode normalised pixels [batch, 3, size, size]."""
        seen = self.encoder.embeddings(pixels)
        for layer in towers.layers(self.encoder):
            seen = layer(seen)
        seen = self.encoder.layernorm(seen)
        parts = seen[:, 1:]
        pooled = seen[:, 0] + parts.mean(1)
        return self.heads(pooled, parts if self.averages is None else self.averages.to(parts) @ parts)  # type: ignore[no-any-return]

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a student, which may have been trained with images or patches of another size."""
        embeddings = self.encoder.embeddings
        positions, projection = (
            f"encoder.embeddings.{name}" for name in ("position_embeddings", "patch_embeddings.projection.weight")
        )
        rows = round((embeddings.position_embeddings.shape[1] - 1) ** 0.5)
        found = {key: value.float() for key, value in weights.items()}
        found[positions] = resized_positions(found[positions], rows)
        found[projection] = resized_projection(found[projection], embeddings.patch_embeddings.side)
        self.load_state_dict(found)


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
