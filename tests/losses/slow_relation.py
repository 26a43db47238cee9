"""Paper 2 to the letter: one loop for every index of its equations, one sample at a time, from a module's weights."""

import math

import torch
from torch import Tensor, nn

from sightline.losses import Pairs
from sightline.losses.graph import AssociationGraph
from sightline.losses.relation_mechanisms import Fusion, Standalone
from sightline.models.attention import Attending, FeedForward

Rows = list[Tensor]


def overall(ones: Tensor, others: Tensor) -> Tensor:
    """Equation 7 for one pair: real fragments [n, dim] and [m, dim]."""
    total = torch.zeros(())
    for one in ones:
        total = total + max(one @ other for other in others)
    return total / len(ones)


def best(ones: Tensor, others: Tensor, k: int) -> Tensor:
    """Equation 8 for one pair; where there are fewer than k fragments, the rest is zero."""
    found = sorted((max((one @ other).item() for other in others) for one in ones), reverse=True)[:k]
    return torch.tensor(found + [0.0] * (k - len(found)))


def relevance(network: nn.Module, ones: Tensor, others: Tensor, k: int) -> Tensor:
    """Equation 9 for one pair."""
    return network(best(ones, others, k))[0] + overall(ones, others)


def closeness(one: Tensor, other: Tensor) -> Tensor:
    """Equation 10 for one pair, sigma = 1."""
    return torch.exp(-((one - other) ** 2).sum())


def neighbours(scores: list[float], share: float) -> list[bool]:
    """Equations 5 and 6 for one node: which are among the first share * N."""
    count = max(1, int(share * len(scores)))
    order = sorted(range(len(scores)), key=lambda j: -scores[j])[:count]
    return [j in order for j in range(len(scores))]


def fragments(pairs: Pairs) -> tuple[list[Tensor], list[Tensor]]:
    """The real fragments of each image and of each text."""
    return tuple(  # type: ignore[return-value]
        [values[real] for values, real in zip(side.fragments, side.mask, strict=True)]
        for side in (pairs.images, pairs.texts)
    )


def graph(module: AssociationGraph, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """A and S of equation 4, node by node, images first: [I + T, I + T] each."""
    images, texts = pairs.images.embedding, pairs.texts.embedding
    patches, words = fragments(pairs)
    connected, relevant = [], []
    for i, image in enumerate(images):
        by_image = [(image @ other).item() for other in images]
        by_text = [overall(patches[i], some).item() for some in words]
        connected.append(neighbours(by_image, module.share) + neighbours(by_text, module.share))
        row = [closeness(image, other) for other in images]
        relevant.append(row + [relevance(module.to_text, patches[i], some, module.k) for some in words])
    for t, text in enumerate(texts):
        by_image = [overall(words[t], some).item() for some in patches]
        by_text = [(text @ other).item() for other in texts]
        connected.append(neighbours(by_image, module.share) + neighbours(by_text, module.share))
        row = [relevance(module.to_image, words[t], some, module.k) for some in patches]
        relevant.append(row + [closeness(text, other) for other in texts])
    return torch.tensor(connected), torch.stack([torch.stack(row) for row in relevant])


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


def triplet(images: Rows, texts: Rows, pairs: Pairs, margin: float) -> Tensor:
    """Equation 13 over the positive pairs, each against the hardest negative of either side, averaged."""

    def similarity(one: Tensor, other: Tensor) -> Tensor:
        return one @ other / (one.norm() * other.norm())

    total, count = torch.zeros(()), 0
    for i, image in enumerate(images):
        for t, text in enumerate(texts):
            if pairs.image_ids[i] != pairs.text_ids[t]:
                continue
            count += 1
            own = similarity(image, text)
            wrong = [similarity(image, texts[j]) for j in range(len(texts)) if pairs.text_ids[j] != pairs.image_ids[i]]
            other = [similarity(images[j], text) for j in range(len(images)) if pairs.image_ids[j] != pairs.text_ids[t]]
            for negatives in (wrong, other):
                total = total + max(margin - own + max(negatives), torch.zeros(()))
    return total / count


def regularisation(pairs: Pairs, relevant: Tensor) -> Tensor:
    """Equation 11: KL of the learned relevance, by softmax, from that of the embeddings."""
    images, texts = pairs.images.embedding, pairs.texts.embedding
    n, total = len(images), torch.zeros(())
    for rows, columns, block in ((images, texts, relevant[:n, n:]), (texts, images, relevant[n:, :n])):
        for i, row in enumerate(rows):
            expected = torch.softmax(torch.stack([closeness(row, column) for column in columns]), 0)
            found = torch.softmax(block[i], 0)
            total = total + sum(p * (p / q).log() for p, q in zip(expected, found, strict=True)) / len(rows)
    return total
