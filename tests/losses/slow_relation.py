"""Figure 4 of paper 2, node by node and head by head, from a module's weights."""

import math

import torch
from torch import Tensor

from sightline.losses.relation_mechanisms import Fusion, Standalone
from sightline.models.attention import Attending, FeedForward

Rows = list[Tensor]


def attend(module: Attending, items: Rows, others: Rows, seen: Tensor, bias: Tensor) -> Rows:
    """Equation 12 with a residual connection and a norm, item by item, head by head, over what is seen."""
    width = len(items[0]) // module.heads
    updated = []
    for i, item in enumerate(items):
        heads = []
        for head in range(module.heads):
            part = slice(head * width, (head + 1) * width)
            shown = [j for j in range(len(others)) if seen[i, j]]
            query = module.query(item)[part]
            scores = [query @ module.key(others[j])[part] / math.sqrt(width) + bias[i, j] for j in shown]
            total = sum(score.exp() for score in scores)
            values = [
                score.exp() / total * module.value(others[j])[part] for score, j in zip(scores, shown, strict=True)
            ]
            heads.append(torch.stack(values).sum(0))
        updated.append(module.norm(item + module.out(torch.cat(heads))))
    return updated


def feed_forward(module: FeedForward, items: Rows) -> Rows:
    return [module.norm(item + module.outer(torch.relu(module.inner(item)))) for item in items]


def fused(module: Fusion, images: Tensor, texts: Tensor, connected: Tensor, relevant: Tensor) -> tuple[Rows, Rows]:
    """Figure 4b."""
    nodes, count = [*images, *texts], len(images)
    for attention, network in zip(module.attend, module.feed_forward, strict=True):
        nodes = feed_forward(network, attend(attention, nodes, nodes, connected, module.weight * relevant))
    return nodes[:count], nodes[count:]


def apart(module: Standalone, images: Tensor, texts: Tensor, connected: Tensor, relevant: Tensor) -> tuple[Rows, Rows]:
    """Figure 4a."""
    n = len(images)
    pictures, captions = list(images), list(texts)
    bias = module.weight * relevant
    for of_images, of_texts in zip(module.images, module.texts, strict=True):
        across = attend(of_images.inter, pictures, captions, connected[:n, n:], bias[:n, n:])
        back = attend(of_texts.inter, captions, pictures, connected[n:, :n], bias[n:, :n])
        across = attend(of_images.intra, across, across, connected[:n, :n], bias[:n, :n])
        back = attend(of_texts.intra, back, back, connected[n:, n:], bias[n:, n:])
        pictures, captions = feed_forward(of_images.feed_forward, across), feed_forward(of_texts.feed_forward, back)
    return pictures, captions
