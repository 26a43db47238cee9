from sightline.losses.base import Field, Inputs, Objective, Pairs
from sightline.losses.contrastive import Contrastive
from sightline.losses.distillation import Distill
from sightline.losses.listwise import Listwise
from sightline.losses.masked_fragments import MaskedFragments
from sightline.losses.masked_words import MaskedWords
from sightline.losses.matching import Matching
from sightline.losses.relation import Relation
from sightline.losses.triplet import Triplet

OBJECTIVES: dict[str, type[Objective]] = {
    "triplet": Triplet,
    "contrastive": Contrastive,
    "matching": Matching,
    "listwise": Listwise,
    "distill": Distill,
    "masked_words": MaskedWords,
    "masked_fragments": MaskedFragments,
    "relation": Relation,
}
"""Every objective by its name in a recipe; the arguments of its constructor are the recipe's settings."""

__all__ = [
    "OBJECTIVES",
    "Contrastive",
    "Distill",
    "Field",
    "Inputs",
    "Listwise",
    "MaskedFragments",
    "MaskedWords",
    "Matching",
    "Objective",
    "Pairs",
    "Relation",
    "Triplet",
]
