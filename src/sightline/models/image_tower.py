"""An image tower: pixels in, one pooled vector and a grid of patch vectors out."""

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.retriever import Seen


class ImageTower(nn.Module):
    """Wraps any vision encoder of transformers: CLIP, SigLIP, ViT, DINOv2, Swin, ConvNeXt and their like.

    `pool_to` pools the patches to a square grid of that many rows by averaging (7 turns 14 x 14 patches into 7 x 7).
    The pooled vector is the class token where there is one, the model's own attention pooling where it has that
    (SigLIP), and else the mean of the patches. `below` asks for the patches of that layer too, counted from 1, each
    brought to mean 0 and variance 1.
    """

    def __init__(self, encoder: PreTrainedModel, image_size: int, pool_to: int | None, below: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.pool_to = pool_to
        self.below = below
        native = getattr(encoder.config, "image_size", image_size)
        native = native if isinstance(native, int) else native[0]
        if native != image_size and encoder.config.model_type != "convnext":
            raise ModelError(
                f"the image tower reads {native} x {native} pixels, but image size {image_size} was asked for"
            )
        self.rows = self._rows(image_size)
        if pool_to is not None and not 0 < pool_to <= self.rows:
            raise ModelError(f"patches cannot be pooled to a grid of {pool_to} rows: the tower has {self.rows}")
        if below and below >= len(towers.layers(encoder)):
            raise ModelError(
                f"layer {below} of the image tower was asked for, and it has {len(towers.layers(encoder))}",
                "Give a layer before the last, counted from 1, or 0 for the last.",
            )

    def _rows(self, image_size: int) -> int:
        """Rows of the encoder's own grid, from its config: patch size, times two for each merging stage."""
        config = self.encoder.config
        patch = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
        merges = len(config.depths) - 1 if hasattr(config, "depths") else 0
        return int(image_size // (patch * 2**merges))

    @property
    def hidden(self) -> int:
        """Width of what the encoder gives."""
        sizes = getattr(self.encoder.config, "hidden_sizes", None)
        return int(sizes[-1]) if sizes else int(self.encoder.config.hidden_size)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patches given."""
        rows = self.pool_to or self.rows
        return rows, rows

    def forward(self, pixels: Tensor) -> Seen:
        """Look at pixels [batch, 3, size, size]."""
        below: list[Tensor] = []
        hook = self._hook(below)
        try:
            out = self.encoder(pixel_values=pixels)
        finally:
            if hook is not None:
                hook.remove()
        tokens = out.last_hidden_state
        if tokens.ndim == 4:  # convolutional: [batch, hidden, rows, columns]
            tokens = tokens.flatten(2).transpose(1, 2)
        if hasattr(self.encoder, "post_layernorm") and self.encoder.config.model_type == "clip_vision_model":
            tokens = self.encoder.post_layernorm(tokens)  # CLIP normalises only the class token by itself
        extra = tokens.shape[1] - self.rows**2
        patches = tokens[:, extra:]
        if extra:
            pooled = tokens[:, 0]
        elif isinstance(getattr(self.encoder, "head", None), nn.Module):
            pooled = out.pooler_output
        else:
            pooled = patches.mean(1)
        return Seen(pooled, self._pool(patches), self._pool(_standard(below[0][:, extra:])) if below else None)

    def _hook(self, into: list[Tensor]) -> RemovableHandle | None:
        """Overhear what one layer says, whichever way the encoder calls its layers."""
        if not self.below:
            return None

        def hear(_: nn.Module, __: object, said: Tensor | tuple[Tensor, ...]) -> None:
            into.append(said if isinstance(said, Tensor) else said[0])

        return towers.layers(self.encoder)[self.below - 1].register_forward_hook(hear)

    def _pool(self, patches: Tensor) -> Tensor:
        if self.pool_to is None or self.pool_to == self.rows:
            return patches
        batch, _, hidden = patches.shape
        square = patches.transpose(1, 2).reshape(batch, hidden, self.rows, self.rows)
        if self.rows % self.pool_to == 0:
            pooled = F.avg_pool2d(square, self.rows // self.pool_to)
        else:
            pooled = F.adaptive_avg_pool2d(square, self.pool_to)
        return pooled.flatten(2).transpose(1, 2)


def _standard(values: Tensor) -> Tensor:
    """Bring each vector to mean 0 and variance 1: between layers a few coordinates are a hundred times the others."""
    return F.layer_norm(values, values.shape[-1:])
