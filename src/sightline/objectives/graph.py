"""The graph of a batch: which texts and images are connected, and how relevant each is to the other (paper 2, 3.3.1).

Images and texts are its nodes. Blocks [from, to] say what an image is to the others, and a text: image to image, image
to text, text to image, text to text (equation 4). Numbers of images [I] and texts [T] may differ.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sightline.objectives.objective import Pairs

_NEVER = -2.0  # below every cosine


class Blocks(NamedTuple):
    """Of one relation: image_image [I, I], image_text [I, T], text_image [T, I] and text_text [T, T]."""

    image_image: Tensor
    image_text: Tensor
    text_image: Tensor
    text_text: Tensor

    def joined(self) -> Tensor:
        """All of it as one matrix, images first: [I + T, I + T]."""
        rows = ((self.image_image, self.image_text), (self.text_image, self.text_text))
        return torch.cat([torch.cat(row, 1) for row in rows])


class Graph(NamedTuple):
    """connected: A, bool; relevance: S, float32, both in blocks."""

    connected: Blocks
    relevance: Blocks


class Matched(NamedTuple):
    """How well the fragments of images and texts match, in one direction.

    overall: p, [from, to], the mean over fragments of their best match (equation 7).
    best: q, [from, to, K], the K best of those matches, best first; zeros where there are fewer (equation 8).
    """

    overall: Tensor
    best: Tensor


def matched(pairs: Pairs, k: int, chunk: int = 0) -> tuple[Matched, Matched]:
    """Match every image's fragments with every text's: image to text, and text to image.

    `chunk` texts at a time, and again when the gradient comes back, so that the cosines of all fragments are never
    there at once; 0 takes all.
    """
    patches, patch_mask = pairs.images.fragments.float(), pairs.images.mask
    words, word_mask = pairs.texts.fragments.float(), pairs.texts.mask
    if not 0 < chunk < len(words):
        parts = [_matched(words, word_mask, patches, patch_mask, k)]
    else:
        some = zip(torch.split(words, chunk), torch.split(word_mask, chunk), strict=True)
        parts = [checkpoint(_matched, *part, patches, patch_mask, k, use_reentrant=False) for part in some]
    to_text, to_text_best, to_image, to_image_best = (torch.cat(part) for part in zip(*parts, strict=True))
    return Matched(to_text.T, to_text_best.transpose(0, 1)), Matched(to_image, to_image_best)


def _matched(words: Tensor, word_mask: Tensor, patches: Tensor, patch_mask: Tensor, k: int) -> tuple[Tensor, ...]:
    """Images to some texts and these texts to images: p [texts, images] and q [texts, images, k], twice."""
    cosines = (words.flatten(0, 1) @ patches.flatten(0, 1).T).view(*words.shape[:2], *patches.shape[:2])
    of_patches = cosines.masked_fill(~word_mask[:, :, None, None], _NEVER).max(1).values
    of_words = cosines.masked_fill(~patch_mask, _NEVER).max(3).values.transpose(1, 2)
    return (*_summed_up(of_patches, patch_mask[None], k), *_summed_up(of_words, word_mask[:, None], k))


def _summed_up(best: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mean [texts, images] and top k [texts, images, k] of each pair's best matches [texts, images, n]."""
    overall = (best * mask).sum(2) / mask.sum(2).clamp(min=1)
    top = best.masked_fill(~mask, _NEVER).topk(min(k, best.shape[2]), 2).values
    return overall, F.pad(top.masked_fill(top == _NEVER, 0.0), (0, k - top.shape[2]))


@torch.no_grad()
def nearest(scores: Tensor, share: float) -> Tensor:
    """True at the τN highest of each row of scores [from, N], at least one (equations 5 and 6)."""
    count = max(1, int(share * scores.shape[1]))
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(count, 1).indices, True)


def closeness(ones: Tensor, others: Tensor) -> Tensor:
    """e^(-‖a - b‖²) of all unit vectors [n, dim] with all [m, dim]: equation 10, σ = 1."""
    return (2 * (ones @ others.T - 1)).exp()


class AssociationGraph(nn.Module):
    """Builds the graph of a batch.

    share: τ, the share of a block's columns that a row is connected to.
    k: K, how many matches make a matching vector.
    chunk: see `matched`.

    Gradients flow into the relevance, and from there into embeddings, fragments and the two networks, one for either
    direction (equation 9). Who is connected is decided without gradients.
    """

    def __init__(self, share: float, k: int, chunk: int) -> None:
        super().__init__()
        self.share, self.k, self.chunk = share, k, chunk
        self.to_text, self.to_image = (nn.Sequential(nn.Linear(k, k), nn.ReLU(), nn.Linear(k, 1)) for _ in range(2))

    def forward(self, pairs: Pairs) -> Graph:
        """Connect and weigh the images and texts of a batch."""
        images, texts = pairs.images.embedding.float(), pairs.texts.embedding.float()
        to_text, to_image = matched(pairs, self.k, self.chunk)
        alike = (images @ images.T, to_text.overall, to_image.overall, texts @ texts.T)
        connected = Blocks(*(nearest(scores, self.share) for scores in alike))
        relevance = Blocks(
            closeness(images, images),
            self.to_text(to_text.best).squeeze(2) + to_text.overall,
            self.to_image(to_image.best).squeeze(2) + to_image.overall,
            closeness(texts, texts),
        )
        return Graph(connected, relevance)


def relevance_loss(pairs: Pairs, relevance: Blocks) -> Tensor:
    """Equation 11: how far the learned relevance is from that of the embeddings, which it does not move.

    The divergence of two softmaxes, averaged over images and over texts; this process's share of each.
    """
    images, texts = pairs.images.embedding.detach().float(), pairs.texts.embedding.detach().float()
    expected = closeness(images, texts)
    of_images = _divergence(relevance.image_text, expected)[pairs.own_images].sum() / len(images)
    return of_images + _divergence(relevance.text_image, expected.T)[pairs.own_texts].sum() / len(texts)


def _divergence(found: Tensor, expected: Tensor) -> Tensor:
    """KL of softmax(found) from softmax(expected) for each row: [rows]."""
    return F.kl_div(found.log_softmax(1), expected.log_softmax(1), reduction="none", log_target=True).sum(1)
