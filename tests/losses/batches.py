"""Small random batches of encoded texts and images, and a matcher whose judgement is a known function."""

import dataclasses
from itertools import pairwise

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.losses import Loss, Pairs
from sightline.models import EncodedTensors

IDS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def encoded(rows: int, generator: torch.Generator, dim: int) -> EncodedTensors:
    """Random unit embeddings, fragments and states that collect gradients; the last place of odd rows is padding."""
    embedding = F.normalize(torch.randn(rows, dim, generator=generator), dim=-1).requires_grad_()
    states = torch.randn(rows, 3, 4, generator=generator).requires_grad_()
    mask = torch.ones(rows, 3, dtype=torch.bool)
    mask[1::2, -1] = False
    return EncodedTensors(embedding, F.normalize(states.detach(), dim=-1).requires_grad_(), mask, states)


def batch(text_ids: list[int], image_ids: list[int], seed: int = 0, dim: int = 5) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    texts, images = encoded(len(text_ids), generator, dim), encoded(len(image_ids), generator, dim)
    taught = 3 * torch.randn(len(text_ids), len(image_ids), generator=generator)
    return Pairs(texts, images, torch.tensor(text_ids), torch.tensor(image_ids), teacher_scores=taught)


BATCHES = st.builds(batch, IDS, IDS, st.integers(0, 999), st.sampled_from([3, 5, 64]))


def sources(pairs: Pairs) -> list[Tensor]:
    """The leaves of a batch."""
    sides = (pairs.texts, pairs.images)
    return [x for side in sides for x in (side.embedding, side.fragments, side.states) if x is not None]


def gradients(loss: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Gradients of each leaf, zeros where the loss does not depend on it."""
    if not loss.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True)]


def value(objective: Loss, pairs: Pairs, seed: int = 0) -> Tensor:
    """The loss, drawn from a generator of that seed, with `Judge` for a model."""
    loss: Tensor = objective(pairs, Judge(), torch.Generator().manual_seed(seed))
    return loss


def shards(pairs: Pairs, text_cuts: list[int], image_cuts: list[int]) -> list[Pairs]:
    """The batch as seen by several processes: rows are cut at the given places, which may leave some with none."""
    return [
        dataclasses.replace(pairs, own_texts=slice(*texts), own_images=slice(*images))
        for texts, images in zip(
            pairwise([0, *sorted(text_cuts), len(pairs.text_ids)]),
            pairwise([0, *sorted(image_cuts), len(pairs.image_ids)]),
            strict=True,
        )
    ]


def masked_sum(states: Tensor, mask: Tensor) -> Tensor:
    return (states * mask[..., None]).sum(1)


class Judge(nn.Module):
    """Matches by the dot product of the sums of the real states."""

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        return (masked_sum(text_states, text_mask) * masked_sum(image_states, image_mask)).sum(1)
