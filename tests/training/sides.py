"""A small batch of texts and images for a model, and its gradients, computed by one process or its share of two."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

import tiny
from sightline.losses import Contrastive, Distill, Loss, Matching, Pairs, Relation, Triplet
from sightline.models.retriever import Retriever, Tokens
from sightline.training.distributed import World
from sightline.training.gradients import Side, backward

TEXT_IDS = torch.tensor([0, 0, 1, 2, 3, 4, 4])
IMAGE_IDS = torch.tensor([0, 1, 2, 3, 4])
REPEATED_IDS = torch.tensor([0, 1, 2, 0, 3])
"""Images of which one is there twice, and one of no text is left."""

TAUGHT = torch.randn(len(TEXT_IDS), len(IMAGE_IDS), generator=torch.Generator().manual_seed(8))
"""What a teacher says of every text with every image."""


def _relation(mechanism: Literal["fusion", "standalone"], chunk: int) -> Relation:
    """A relation loss for the tiny models, with the same weights in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        relation = Relation(mechanism, 0.5, "hardest", heads=4, matches=3, dropout=0.2, chunk=chunk)
        relation.fit(tiny.retriever(tiny.DUAL))
    return relation


LOSSES: dict[str, list[Loss]] = {
    "triplet hardest": [Triplet(0.5)],
    "triplet mean": [Triplet(0.5, "mean")],
    "triplet sum": [Triplet(0.5, "sum")],
    "triplet distance": [Triplet(0.5, "distance", nearest=0.1, farthest=2.0)],
    "triplet on fragments": [Triplet(0.5, "sum", on="fragments")],
    "contrastive": [Contrastive()],
    "contrastive smooth": [Contrastive(temperature=0.5, label_smoothing=0.2)],
    "matching hard": [Matching()],
    "matching random": [Matching("random", "one")],
    "matching in chunks": [Matching("hard", "both", chunk=4)],
    "distill": [Distill("embedding", 1.0, 0.5)],
    "distill on fragments": [Distill("fragments", 2.0, 2.0)],
    "relation fusion": [_relation("fusion", 0)],
    "relation standalone": [_relation("standalone", 3)],
    "all": [Triplet(0.5, "mean"), Contrastive(), Matching()],
}


def sides(model: Retriever, image_ids: Tensor = IMAGE_IDS, world: World | None = None) -> tuple[Side, Side]:
    """Seven texts of several lengths and five images, some of which belong to two texts."""
    chance = torch.Generator().manual_seed(1)
    lengths = torch.tensor([6, 3, 5, 6, 2, 4, 5])
    mask = torch.arange(6)[None] < lengths[:, None]
    ids = torch.randint(4, len(tiny.WORDS), mask.shape, generator=chance) * mask
    pixels = torch.randn(len(image_ids), 3, 32, 32, generator=chance)
    world = world or World()
    own_texts, own_images = world.share(len(ids)), world.share(len(pixels))
    ids, mask, pixels = ids[own_texts], mask[own_texts], pixels[own_images]
    return (
        Side(lambda rows: model.encode_texts(Tokens(ids[rows], mask[rows])), TEXT_IDS),
        Side(lambda rows: model.encode_images(pixels[rows]), image_ids),
    )


def plain_gradients(model: Retriever, objectives: list[Loss]) -> tuple[dict[str, float], Mapping[str, Tensor | None]]:
    """As `gradients`, by nothing but autograd through the whole batch: what all others must agree with."""
    everything = torch.nn.ModuleDict({"model": model, **{f"{i}": objective for i, objective in enumerate(objectives)}})
    everything.zero_grad()
    texts, images = sides(model)
    pairs = Pairs(texts.encode(slice(None)), images.encode(slice(None)), texts.ids, images.ids, teacher_scores=TAUGHT)
    losses = [objective(pairs, model, torch.Generator().manual_seed(3)) for objective in objectives]
    torch.stack([(0.5 + number) * loss for number, loss in enumerate(losses)]).sum().backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad if p.grad is None else p.grad.clone() for name, p in everything.named_parameters()}
    return {f"{number}": float(loss.detach()) for number, loss in enumerate(losses)}, found


def gradients(
    model: Retriever,
    objectives: list[Loss],
    chunk: int,
    image_ids: Tensor = IMAGE_IDS,
    world: World | None = None,
) -> tuple[dict[str, float], Mapping[str, Tensor | None]]:
    """The loss of each objective, and the gradient of each parameter of the model and the losses."""
    named = {f"{number}": objective for number, objective in enumerate(objectives)}
    everything = torch.nn.ModuleDict({"model": model, **named})
    everything.zero_grad()
    weighted = {name: (objective, 0.5 + int(name)) for name, objective in named.items()}
    both = sides(model, image_ids, world)
    losses = backward(model, weighted, *both, seed=3, chunk=chunk, world=world, teacher_scores=TAUGHT)
    values = {name: float(value) for name, value in losses.items()}
    return values, {name: p.grad if p.grad is None else p.grad.clone() for name, p in everything.named_parameters()}
