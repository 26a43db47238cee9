"""An image tower: encodes pixels as one pooled vector and the vectors of patches, and of codes if it has them."""

import math
from contextlib import ExitStack
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.fragments import clusters, new_codes, with_codes
from sightline.models.retriever import TowerFeatures

Pool = Literal["grid", "kmeans"]
_SPREAD = 0.2  # standard deviation of codes: vectors between CLIP's layers have 0.1 in the first, 0.3 in the last


class ImageTower(nn.Module):
    """Wraps any vision encoder of transformers: CLIP, SigLIP, ViT, DINOv2, Swin, ConvNeXt, ResNet, MobileViT, ….

    The pooled vector is the class token if there is one, the model's own attention pooling if it has one (SigLIP), and
    otherwise the mean of the patches. Codes are not pooled.

    pool_to: the size to pool patches to, None for no pooling. "grid" averages them to a square grid of that many rows
    (7 turns 14 x 14 patches into 7 x 7), "kmeans" to that many clusters of similar patches.
    pool_layer: "grid" pools after this many layers, so that the layers above read fewer patches; 0 pools after the
    last.
    below: also return the patches of this layer, counted from 1, each normalised to mean 0 and variance 1, and pooled
    in the same way as those of the last layer.
    codes: the number of learned vectors that join the patches after the first `codes_layer` layers. Earlier layers do
    not see them, so if those are frozen, training does not backpropagate through them.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        image_size: int,
        pool_to: int | None,
        below: int = 0,
        *,
        pool: Pool = "grid",
        pool_layer: int = 0,
        codes: int = 0,
        codes_layer: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pool_to = pool_to
        self.pool = pool
        self.pool_layer = pool_layer
        self.below = below
        self.codes_layer = codes_layer
        self.rows, self.hidden = grid_of(encoder, image_size)
        most = self.rows if pool == "grid" else self.rows**2
        if pool_to is not None and not 0 < pool_to <= most:
            wanted = f"a grid of {pool_to} rows" if pool == "grid" else f"{pool_to} clusters"
            raise ModelError(
                f"cannot pool patches to {wanted}: the image tower has {most}",
                f"Set model.pool_to to at most {most}, or leave it out to keep every patch.",
            )
        if below and below >= len(towers.layers(encoder)):
            raise ModelError(
                f"layer {below} is not before the last of the image tower's {len(towers.layers(encoder))} layers",
                "Use a layer before the last, counted from 1, or 0 for the last.",
            )
        if pool_layer:
            self._check_pool_layer(codes)
        if codes:
            self._check_plain("take codes: its layers merge what they read", "codes = 0")
            self._check_layer(
                "codes_layer", codes_layer, "Set it to the number of layers before the codes, or 0 for none."
            )
        self.codes = new_codes(codes, self.hidden, _SPREAD)

    def _check_pool_layer(self, codes: int) -> None:
        """Reject pooling between layers for an encoder that does not support it."""
        if self.pool_to is None or self.pool != "grid" or codes:
            raise ModelError(
                "pool_layer cannot be combined with clusters or codes, because it pools to a grid between two layers",
                'Set pool_to with pool = "grid" and codes = 0, or pool_layer = 0.',
            )
        self._check_plain("be pooled between its layers: they merge by themselves", "pool_layer = 0")
        self._check_layer(
            "pool_layer", self.pool_layer, "Set it to the number of layers that read every patch, or 0 for all."
        )

    def _check_plain(self, cannot: str, instead: str) -> None:
        """Reject an encoder whose layers do not all read the same sequence."""
        config = self.encoder.config
        if hasattr(config, "depths") or hasattr(config, "hidden_sizes"):
            raise ModelError(
                f"{config.model_type} cannot {cannot}",
                f"Use a tower such as CLIP, SigLIP, ViT or DINOv2, or {instead}.",
            )

    def _check_layer(self, key: str, layer: int, way_out: str) -> None:
        """Reject a layer number that the encoder does not have."""
        count = len(towers.layers(self.encoder))
        if not 0 <= layer < count:
            raise ModelError(f"{key} is {layer}, but the image tower has {count} layers", way_out)

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the returned patches, which come before the codes; None for clusters."""
        if self.pool_to is not None and self.pool == "kmeans":
            return None
        rows = self.pool_to or self.rows
        return rows, rows

    @property
    def places(self) -> int:
        """The number of returned patches or clusters, without codes."""
        if self.pool_to is None:
            return self.rows**2
        return self.pool_to if self.pool == "kmeans" else self.pool_to**2

    def check_places(self, count: int) -> None:
        """Reject a tower with fewer than `count` patches."""
        if count > self.places:
            raise ModelError(f"{count} fragments per image were requested, but the image tower returns {self.places}")

    def forward(self, pixels: Tensor) -> TowerFeatures:
        """Encode pixels [batch, 3, size, size]."""
        below: list[Tensor] = []
        with ExitStack() as hooks:
            self._pool_between(hooks)
            self._insert(hooks)
            self._listen(hooks, self.below, below)
            out = self.encoder(pixel_values=pixels)
        tokens = self._last(out.last_hidden_state)
        count = 0 if self.codes is None else len(self.codes)
        end = tokens.shape[1] - count
        extra = end - (self.places if self.pool_layer else self.rows**2)
        patches = tokens[:, extra:end]
        if extra:
            pooled = tokens[:, 0]
        elif isinstance(getattr(self.encoder, "head", None), nn.Module):
            pooled = self.encoder.head(patches) if count else out.pooler_output
        else:
            pooled = patches.mean(1)
        shares = clusters(patches, self.pool_to)[0] if self.pool_to is not None and self.pool == "kmeans" else None
        return TowerFeatures(
            pooled,
            self._joined(patches, shares, tokens[:, end:]),
            self._joined(*self._apart(_standard(below[0]), extra, end, shares)) if below else None,
        )

    def patches(self, pixels: Tensor, layer: int = 0) -> Tensor:
        """Return the vectors [batch, rows * rows, hidden] of all patches, not pooled, without codes.

        layer: the layer of the vectors, counted from 1; 0 is the last. Earlier ones are normalised to mean 0 and
            variance 1.
        """
        self._check_plain(
            "distinguish its patches: its layers merge their inputs", "leave out the settings that need them"
        )
        heard: list[Tensor] = []
        with ExitStack() as hooks:
            self._listen(hooks, layer, heard)
            out = self.encoder(pixel_values=pixels)
        tokens = _standard(heard[0]) if heard else self._last(out.last_hidden_state)
        return tokens[:, -(self.rows**2) :]

    def _last(self, tokens: Tensor) -> Tensor:
        """Return the encoder's last output as [batch, n, hidden]."""
        if tokens.ndim == 4:  # convolutional: [batch, hidden, rows, columns]
            tokens = tokens.flatten(2).transpose(1, 2)
        if hasattr(self.encoder, "post_layernorm") and self.encoder.config.model_type == "clip_vision_model":
            tokens = self.encoder.post_layernorm(tokens)  # CLIP itself normalises only the class token
        return tokens

    def _pool_between(self, hooks: ExitStack) -> None:
        """Pool to the smaller grid before one of the layers."""
        if not self.pool_layer:
            return

        def pool(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            extra = given[0].shape[1] - self.rows**2
            return torch.cat([given[0][:, :extra], self._pool(given[0][:, extra:])], 1), *given[1:]

        hooks.callback(towers.layers(self.encoder)[self.pool_layer].register_forward_pre_hook(pool).remove)

    def _insert(self, hooks: ExitStack) -> None:
        """Append codes to the input of one layer."""
        codes = self.codes
        if codes is None:
            return

        def join(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return with_codes(given[0], codes), *given[1:]

        hooks.callback(towers.layers(self.encoder)[self.codes_layer].register_forward_pre_hook(join).remove)

    def _listen(self, hooks: ExitStack, layer: int, into: list[Tensor]) -> None:
        """Record the output of one layer, counted from 1; 0 records nothing."""
        if not layer:
            return

        def hear(_: nn.Module, __: object, said: Tensor | tuple[Tensor, ...]) -> None:
            into.append(said if isinstance(said, Tensor) else said[0])

        hooks.callback(towers.layers(self.encoder)[layer - 1].register_forward_hook(hear).remove)

    def _apart(
        self, tokens: Tensor, extra: int, end: int, shares: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Split the output of an earlier layer into patches and codes; up to `codes_layer`, codes are unchanged."""
        if self.codes is not None and self.below <= self.codes_layer:
            tokens = with_codes(tokens, self.codes)
        if self.below <= self.pool_layer:
            end = tokens.shape[1]
        return tokens[:, extra:end], shares, tokens[:, end:]

    def _joined(self, patches: Tensor, shares: Tensor | None, codes: Tensor) -> Tensor:
        """Pool the patches, and append the codes."""
        pooled = self._pool(patches) if shares is None else shares @ patches
        return pooled if self.codes is None else torch.cat([pooled, codes], 1)

    def _pool(self, patches: Tensor) -> Tensor:
        """Average patches to the smaller grid, unless that was done between layers."""
        if self.pool_to is None or patches.shape[1] == self.pool_to**2:
            return patches
        batch, _, hidden = patches.shape
        square = patches.transpose(1, 2).reshape(batch, hidden, self.rows, self.rows)
        if self.rows % self.pool_to == 0:
            pooled = F.avg_pool2d(square, self.rows // self.pool_to)
        else:
            pooled = F.adaptive_avg_pool2d(square, self.pool_to)
        return pooled.flatten(2).transpose(1, 2)


def _standard(values: Tensor) -> Tensor:
    """Normalise each vector to mean 0 and variance 1; between layers, some coordinates are 100 times the others."""
    return F.layer_norm(values, values.shape[-1:])


def grid_of(encoder: PreTrainedModel, image_size: int) -> tuple[int, int]:
    """Return the number of rows in an encoder's own grid of patches, and the width of their vectors.

    A convolutional encoder reads images of any size, so it is run on a blank image to count the rows.
    """
    config = encoder.config
    native = getattr(config, "image_size", None) or image_size
    native = native if isinstance(native, int) else native[0]
    patch = getattr(config, "patch_size", None)
    patch = patch[0] if isinstance(patch, list | tuple) else patch
    if isinstance(patch, int) and not hasattr(config, "depths") and not hasattr(config, "hidden_sizes"):
        _check_size(native, image_size)
        if not 0 < patch <= image_size:
            raise ModelError(
                f"{config.model_type}: patches of {patch} pixels do not fit into images of {image_size}",
                "Use a smaller patch_size.",
            )
        return image_size // patch, int(config.hidden_size)
    out = _output(encoder, image_size)
    if out.ndim == 4:
        _, hidden, rows, columns = out.shape
    else:
        _check_size(native, image_size)
        rows, hidden = math.isqrt(out.shape[1]), out.shape[2]
        columns = out.shape[1] // rows
    if rows != columns or rows * columns != out[0].numel() // hidden:
        raise ModelError(f"{config.model_type} cannot be an image tower: its output {tuple(out.shape)} is not square")
    return rows, hidden


def _check_size(native: int, image_size: int) -> None:
    if native != image_size:
        raise ModelError(f"the image tower reads {native} x {native} pixels, but image size {image_size} was requested")


@torch.no_grad()
def _output(encoder: PreTrainedModel, image_size: int) -> Tensor:
    """Return the output of an encoder for one blank image."""
    kind, was_training = encoder.config.model_type, encoder.training
    blank = torch.zeros(1, 3, image_size, image_size, device=next(encoder.parameters()).device)
    try:
        out = encoder.eval()(pixel_values=blank).last_hidden_state
    except Exception as error:  # an encoder of another kind may fail in any way
        raise ModelError(
            f"{kind} cannot be an image tower: {error}",
            "Use a vision encoder such as CLIP, SigLIP, ViT, DINOv2, Swin, ConvNeXt or ResNet.",
        ) from error
    encoder.train(was_training)
    if not isinstance(out, Tensor) or out.ndim not in (3, 4):
        raise ModelError(f"{kind} cannot be an image tower: it returns no patch vectors")
    return out
