"""The attention of codes to the words and patches of an item (paper 3, section 5.6)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sightline.bundle.encoded import CodeAttention
from sightline.errors import ModelError
from sightline.models.dual_stream import DualStream
from sightline.models.fragments import clusters
from sightline.models.image_tower import ImageTower
from sightline.models.retriever import Retriever, Tokens
from sightline.models.single_stream import SingleStream


@torch.inference_mode()
def code_attention(retriever: Retriever, tokens: Tokens, pixels: Tensor) -> CodeAttention:
    """Return what each code of a model attends to, averaged over the heads of the last layer.

    tokens: those of one text, [1, n]; pixels: those of one image, [1, 3, size, size].
    """
    if not isinstance(retriever, DualStream | SingleStream) or not retriever.config.codes:
        raise ModelError(
            "this model has no codes", "Train a model with codes, for example with recipes/inflate-codes.toml."
        )
    if retriever.image is None:
        raise ModelError("the image fragments of this model do not form a grid, so its attention cannot be shown")
    with overheard(_text_encoder(retriever)) as read:
        retriever.encode_texts(tokens)
    with overheard(_image_encoder(retriever)) as seen:
        retriever.encode_images(pixels)
    count = retriever.config.codes
    to_tokens = read[0][0, -count:, :-count]
    to_parts = _on_grid(seen[0][0, -count:, :-count], retriever.image, pixels if _reads_pooled(retriever) else None)
    return CodeAttention(to_tokens.cpu().numpy(), to_parts.cpu().numpy())


@contextmanager
def overheard(encoder: PreTrainedModel) -> Iterator[list[Tensor]]:
    """Record the attention [batch, n, n] of an encoder's last layer, averaged over its heads, each time it runs.

    Switches to the eager attention implementation, the only one that returns attention weights.
    """
    usual, heard = encoder.config._attn_implementation, []
    hook = encoder.register_forward_hook(lambda _, __, out: heard.append(out.attentions[-1].float().mean(1)))
    encoder.set_attn_implementation("eager")
    encoder.config.output_attentions = True
    try:
        yield heard
    finally:
        encoder.config.output_attentions = False
        encoder.set_attn_implementation(usual)
        hook.remove()


def _text_encoder(retriever: DualStream | SingleStream) -> PreTrainedModel:
    return retriever.text.encoder if isinstance(retriever, DualStream) else retriever.transformer.encoder


def _image_encoder(retriever: DualStream | SingleStream) -> PreTrainedModel:
    """Return the encoder that reads the image codes: the image tower, or the transformer after it."""
    if isinstance(retriever, SingleStream):
        return retriever.transformer.encoder
    if retriever.image_reader is not None:
        return retriever.image_reader.tower.encoder
    assert retriever.image is not None, "a two-tower model has codes only if it has an image tower"
    return retriever.image.encoder


def _reads_pooled(retriever: DualStream | SingleStream) -> bool:
    """Return whether image codes are read together with pooled patches, not with all patches of an image tower."""
    return isinstance(retriever, SingleStream) or retriever.image_reader is not None


def _on_grid(attention: Tensor, tower: ImageTower, pixels: Tensor | None) -> Tensor:
    """Map the codes' attention [codes, n] to an image's patches onto the image: [codes, rows, columns].

    pixels: given if pooled patches are read; a cluster's attention is divided evenly among its patches.
    """
    rows = tower.rows
    if pixels is None:
        parts = attention[:, -(rows**2) :]  # a class token may come before the patches
    elif tower.grid is None:
        shares, _ = clusters(tower.patches(pixels), tower.places)
        parts = attention[:, -tower.places :] @ shares[0]
    else:
        parts, (rows, _) = attention[:, -tower.places :], tower.grid
    return parts.reshape(len(attention), rows, rows)
