"""The matcher's logits for pairs of a batch, all at once or in chunks."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.errors import ModelError
from sightline.losses.base import Pairs
from sightline.models.retriever import Retriever


def check_chunk(chunk: int) -> int:
    """Refuse a negative number of pairs."""
    if chunk < 0:
        raise ModelError(f"chunk {chunk}", "Give a number of pairs, or 0 for all at once.")
    return chunk


def match_logits(pairs: Pairs, model: Retriever, texts: Tensor, images: Tensor, chunk: int = 0) -> Tensor:
    """Logits [n], float32, that texts and images of the batch, given by their rows [n], belong together.

    chunk: this many pairs at a time, again in the backward pass; 0 is all at once.
    """
    text_states, image_states = pairs.texts.states, pairs.images.states
    if text_states is None or image_states is None:
        raise ModelError("matching needs states to match, and this model has none", "Build it with a matcher.")
    if not len(texts):
        return (text_states[:0].sum() + image_states[:0].sum()).float().expand(0)

    def judged(texts: Tensor, images: Tensor) -> Tensor:
        # A row is in many pairs: the backward pass of index_select adds up, where that of indexing sorts first.
        return model.match(
            text_states.index_select(0, texts),
            pairs.texts.mask[texts],
            image_states.index_select(0, images),
            pairs.images.mask[images],
        )

    if not 0 < chunk < len(texts):
        return judged(texts, images).float()
    parts = zip(torch.split(texts, chunk), torch.split(images, chunk), strict=True)
    return torch.cat([checkpoint(judged, *part, use_reentrant=False) for part in parts]).float()
