"""Late interaction of texts and images, with gradients (paper 3, equation 5)."""

import torch
from torch import Tensor

from sightline.errors import ModelError
from sightline.losses.precision import full


def maxsim(words: Tensor, words_mask: Tensor, patches: Tensor, patches_mask: Tensor, chunk: int = 256) -> Tensor:
    """Sum each word's best cosine with a patch over the words of a text: [T, I], in float32 even under autocast.

    words: [T, n, dim] and patches: [I, m, dim], unit length; masks: [T, n] and [I, m], false for padding.

    Equation 5 sums over the words. With the images' arguments first and the texts' second, this function computes the
    reverse: each patch's best word, summed over the patches. The paper does not use the reverse, because its equation 4
    uses the same score in both directions.

    Processes `chunk` texts at a time, so that the cosines of all words and patches are never in memory at once; the
    backward pass needs only the index of the best patch.

    >>> words, patches = torch.eye(2)[None], torch.tensor([[[1.0, 0.0], [0.6, 0.8]]])
    >>> real = torch.ones(1, 2, dtype=torch.bool)
    >>> maxsim(words, real, patches, real)  # best cosines: 1 for the first word, 0.8 for the second
    tensor([[1.8000]])
    """
    _refuse_empty(words_mask)
    _refuse_empty(patches_mask)
    hidden = ~patches_mask
    padded = bool(hidden.any())
    rows = []
    with torch.autocast(words.device.type, enabled=False):
        everything = full(patches).flatten(0, 1).T
        for some, real in zip(torch.split(words, chunk), torch.split(words_mask, chunk), strict=True):
            cosines = (full(some) @ everything).view(*some.shape[:2], *hidden.shape)
            if padded:
                cosines = cosines.masked_fill(hidden, -torch.inf)
            rows.append((cosines.max(3).values * real[:, :, None]).sum(1))
    return torch.cat(rows)


def _refuse_empty(mask: Tensor) -> None:
    """Reject an item without real fragments."""
    empty = ~mask.any(1)
    if bool(empty.any()):
        raise ModelError(
            f"item {int(empty.int().argmax())} of {len(mask)} has no fragments, which late interaction needs",
            "Leave out empty texts.",
        )
