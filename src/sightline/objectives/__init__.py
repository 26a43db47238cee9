from sightline.objectives.contrastive import Contrastive
from sightline.objectives.distilling import Distill
from sightline.objectives.listwise import Listwise
from sightline.objectives.masked_fragments import MaskedFragments
from sightline.objectives.masked_words import MaskedWords
from sightline.objectives.matching import Matching
from sightline.objectives.objective import Field, Inputs, Objective, Pairs
from sightline.objectives.relation import Relation
from sightline.objectives.triplet import Triplet

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
