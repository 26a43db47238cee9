"""Retrieve fast, rerank smart (paper 1) to the letter: slow loops, written from the paper, without sight of our code.

"Code" is github.com/UKPLab/MMT-Retrieval at 86943f2, whose formulas settle what is open; nothing is copied.
images, captions: [n, d] embeddings, row k of both is a pair.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

MARGIN = 0.1


def cosine(a: Tensor, b: Tensor) -> Tensor:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (torch.sqrt(sum(x * x for x in a)) * torch.sqrt(sum(y * y for y in b)))


def triplet_batch_hard(images: Tensor, captions: Tensor, image_ids: Sequence[int], margin: float = MARGIN) -> Tensor:
    """Equation 2 with in-batch hard negatives: the hardest of another image in each direction; the mean over pairs."""
    n = len(images)
    total = 0.0
    for k in range(n):
        others = [j for j in range(n) if image_ids[j] != image_ids[k]]
        best_caption = max((cosine(images[k], captions[j]) for j in others), key=lambda x: x.item())
        best_image = max((cosine(images[j], captions[k]) for j in others), key=lambda x: x.item())
        positive = cosine(images[k], captions[k])
        total = total + torch.clamp(best_caption - positive + margin, min=0)
        total = total + torch.clamp(best_image - positive + margin, min=0)
    return total / n


def matching_bce(p: Tensor, y: Tensor) -> Tensor:
    """Section 3.1: L_CE(i, c) = -(y log p(i, c) + (1 - y) log(1 - p(i, c))); the mean over the pairs."""
    total = 0.0
    for k in range(len(p)):
        total = total - (y[k] * torch.log(p[k]) + (1 - y[k]) * torch.log(1 - p[k]))
    return total / len(p)


def joint_schedule(rounds: int) -> Iterator[str]:
    """Section 3.4: "alternating between the respective sub-models": one step each, with batches of their own."""
    for _ in range(rounds):
        yield "embed"
        yield "match"


def rerank(query: Tensor, items: Tensor, cross_score: Callable[[int], float], k: int) -> list[int]:
    """Section 3.3: the top k by cosine, ordered by the cross-encoder alone."""
    cosines = [cosine(query, x).item() for x in items]
    first = sorted(range(len(items)), key=lambda j: -cosines[j])[:k]
    return sorted(first, key=lambda j: -float(cross_score(j)))


def add_eq3(e: Sequence[float], c: Sequence[float], lam: float) -> list[float]:
    """Equation 3: lambda e + (1 - lambda) c; e is the cosine, c the cross-encoder's probability."""
    return [lam * x + (1 - lam) * y for x, y in zip(e, c, strict=True)]


def norm_add(e: Sequence[float], c: Sequence[float], lam: float) -> list[float]:
    """Equation 3 after e and c were each brought to 0 to 1 over the query's top k."""

    def scaled(x: Sequence[float]) -> list[float]:
        return [(one - min(x)) / (max(x) - min(x)) for one in x]

    return add_eq3(scaled(e), scaled(c), lam)
