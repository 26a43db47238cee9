from sightline.losses.base import Field, Inputs, Loss, Pairs
from sightline.losses.contrastive import Contrastive
from sightline.losses.distillation import Distill
from sightline.losses.listwise import Listwise
from sightline.losses.masked_fragments import MaskedFragments
from sightline.losses.masked_words import MaskedWords
from sightline.losses.matching import Matching
from sightline.losses.matryoshka import Matryoshka
from sightline.losses.relation import Relation
from sightline.losses.triplet import Triplet

LOSSES: dict[str, type[Loss]] = {
    "triplet": Triplet,
    "contrastive": Contrastive,
    "matching": Matching,
    "listwise": Listwise,
    "distill": Distill,
    "masked_words": MaskedWords,
    "masked_fragments": MaskedFragments,
    "relation": Relation,
    "matryoshka": Matryoshka,
}
"""Every loss by its name in a recipe; the arguments of its constructor are the recipe's settings."""

__all__ = [
    "LOSSES",
    "Contrastive",
    "Distill",
    "Field",
    "Inputs",
    "Listwise",
    "Loss",
    "MaskedFragments",
    "MaskedWords",
    "Matching",
    "Matryoshka",
    "Pairs",
    "Relation",
    "Triplet",
]
