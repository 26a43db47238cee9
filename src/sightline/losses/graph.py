"""The association graph of a batch: which texts and images are connected, and how relevant they are (paper 2, 3.3.1).

Its nodes are images and texts. Relations are stored in blocks [from, to]: image to image, image to text, text to image,
text to text (equation 4). The numbers of images [I] and texts [T] may differ.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.losses.base import Pairs
from sightline.losses.precision import full

_NEVER = -2.0  # lower than any cosine
_MULTIPLIED = {"cuda": torch.bfloat16}
"""The dtype in which fragments are multiplied, for devices where it is not float32. A GPU is many times faster in
bfloat16: it accumulates in float32 and rounds the cosines to two or three digits, which suffices to find relevant
pairs."""


class Blocks(NamedTuple):
    """The blocks of one relation: image_image [I, I], image_text [I, T], text_image [T, I] and text_text [T, T]."""

    image_image: Tensor
    image_text: Tensor
    text_image: Tensor
    text_text: Tensor

    def joined(self) -> Tensor:
        """Return all blocks as one matrix, images first: [I + T, I + T]."""
        rows = ((self.image_image, self.image_text), (self.text_image, self.text_text))
        return torch.cat([torch.cat(row, 1) for row in rows])


class BatchGraph(NamedTuple):
    """The graph of a batch, in blocks: `connected` is A, bool, and `relevance` is S, float32."""

    connected: Blocks
    relevance: Blocks


class Matched(NamedTuple):
    """How well the fragments of images and texts match, in one direction.

    overall: p, [from, to], the mean over fragments of their best match (equation 7).
    best: q, [from, to, K], the K best of those matches, best first; zero-padded (equation 8).
    """

    overall: Tensor
    best: Tensor


@torch.no_grad()
def matched(pairs: Pairs, k: int, chunk: int = 0) -> tuple[Matched, Matched]:
    """Match every image's fragments with every text's: image to text, and text to image.

    Fragments receive no gradient, as in the authors' code. Processes `chunk` texts at a time, so that the cosines of
    all fragments are never in memory at once; 0 processes all at once.
    """
    kind = _MULTIPLIED.get(pairs.text_ids.device.type, full(pairs.texts.fragments[:0]).dtype)
    patches, patch_mask = pairs.images.fragments.to(kind), pairs.images.mask
    words, word_mask = pairs.texts.fragments.to(kind), pairs.texts.mask
    if not 0 < chunk < len(words):
        return _matched(words, word_mask, patches, patch_mask, k)
    some = zip(torch.split(words, chunk), torch.split(word_mask, chunk), strict=True)
    parts = [_matched(*part, patches, patch_mask, k) for part in some]
    to_text, to_image = zip(*parts, strict=True)
    return (
        Matched(*(torch.cat(part, 1) for part in zip(*to_text, strict=True))),
        Matched(*(torch.cat(part) for part in zip(*to_image, strict=True))),
    )


def _matched(words: Tensor, word_mask: Tensor, patches: Tensor, patch_mask: Tensor, k: int) -> tuple[Matched, Matched]:
    """Match images with some of the texts, and those texts with the images."""
    cosines = (words.flatten(0, 1) @ patches.flatten(0, 1).T).view(*words.shape[:2], *patches.shape[:2])
    cosines = cosines.masked_fill(~word_mask[:, :, None, None] | ~patch_mask, _NEVER)
    of_patches = cosines.max(1).values.transpose(0, 1)
    of_words = cosines.max(3).values.transpose(1, 2)
    return _summed_up(of_patches, patch_mask, k), _summed_up(of_words, word_mask, k)


def _summed_up(best: Tensor, mask: Tensor, k: int) -> Matched:
    """Summarise the best match of each fragment in another item: best [from, to, n], mask [from, n].

    Matches of padding are `_NEVER`, which the threshold turns into zeros.
    """
    best = full(best)
    overall = F.threshold(best, _NEVER, 0.0).sum(2) / mask.sum(1, keepdim=True).clamp(min=1)
    top = F.threshold(best.topk(min(k, best.shape[2]), 2).values, _NEVER, 0.0)
    missing = k - top.shape[2]
    return Matched(overall, F.pad(top, (0, missing)) if missing else top)


@torch.no_grad()
def nearest(scores: Tensor, share: float) -> Tensor:
    """Return a mask of the τN highest values, at least one, in each row of scores [from, N] (equations 5 and 6)."""
    count = max(1, int(share * scores.shape[1]))
    highest = scores.topk(count, 1, sorted=False).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, highest, True)


def closeness(cosines: Tensor) -> Tensor:
    """Compute e^(-‖a - b‖²) of unit vectors from their cosines (equation 10 with σ = 1)."""
    return (2 * (cosines - 1)).exp()


class AssociationGraph(nn.Module):
    """Builds the graph of a batch.

    share: τ, the fraction of a block's columns that a row is connected to.
    k: K, the number of matches in a matching vector.
    chunk: see `matched`.

    Gradients of the relevance flow to the embeddings and to the two networks, one for each direction (equation 9), but
    not to the fragments. Connections are chosen without gradients.

    This follows the paper as printed; the authors' code also rescales the cosines of fragments as SCAN does, and uses
    the distance instead of its square in equation 10.
    """

    def __init__(self, share: float, k: int, chunk: int) -> None:
        super().__init__()
        self.share, self.k, self.chunk = share, k, chunk
        self.to_text, self.to_image = (nn.Sequential(nn.Linear(k, k), nn.ReLU(), nn.Linear(k, 1)) for _ in range(2))

    def forward(self, pairs: Pairs) -> BatchGraph:
        """Compute the connections and the relevance of the images and texts of a batch."""
        images, texts = full(pairs.images.embedding), full(pairs.texts.embedding)
        to_text, to_image = matched(pairs, self.k, self.chunk)
        alike = Blocks(images @ images.T, to_text.overall, to_image.overall, texts @ texts.T)
        relevance = Blocks(
            closeness(alike.image_image),
            self.to_text(to_text.best).squeeze(2) + to_text.overall,
            self.to_image(to_image.best).squeeze(2) + to_image.overall,
            closeness(alike.text_text),
        )
        return BatchGraph(_connected(alike, self.share), relevance)


@torch.no_grad()
def _connected(alike: Blocks, share: float) -> Blocks:
    """Connect every node with the most similar images and texts."""
    counts = [len(alike.image_image), len(alike.text_text)]
    to_images = nearest(torch.cat([alike.image_image, alike.text_image]), share)
    to_texts = nearest(torch.cat([alike.image_text, alike.text_text]), share)
    image_image, text_image = torch.split(to_images, counts)
    image_text, text_text = torch.split(to_texts, counts)
    return Blocks(image_image, image_text, text_image, text_text)


def relevance_loss(pairs: Pairs, relevance: Blocks) -> Tensor:
    """Compute equation 11: KL(softmax S ‖ softmax Sᵍ) of the learned relevance S and the embeddings' relevance Sᵍ.

    Averaged over images and over texts; returns this process's contribution to the sum of both. Sᵍ is the target and
    receives no gradient, and S passes none to the fragments, so only the two networks of equation 9 learn. The paper
    does not say whether S or Sᵍ comes first in the divergence; this order is that of the authors' code.
    """
    images, texts = full(pairs.images.embedding.detach()), full(pairs.texts.embedding.detach())
    expected = closeness(images @ texts.T)
    of_images = _divergence(relevance.image_text, expected, pairs.own_images)
    return of_images + _divergence(relevance.text_image, expected.T, pairs.own_texts)


def _divergence(found: Tensor, expected: Tensor, own: slice) -> Tensor:
    """Compute KL(softmax(found) ‖ softmax(expected)), summed over own rows and divided by the number of all rows."""
    rows = expected[own, :].log_softmax(1), found[own, :].log_softmax(1)
    return F.kl_div(*rows, reduction="sum", log_target=True) / len(found)
