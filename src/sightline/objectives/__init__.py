from sightline.objectives.contrastive import Contrastive
from sightline.objectives.distilling import Distill
from sightline.objectives.listwise import Listwise
from sightline.objectives.matching import Matching
from sightline.objectives.objective import Field, Objective, Pairs
from sightline.objectives.triplet import Triplet

OBJECTIVES: dict[str, type[Objective]] = {
    "triplet": Triplet,
    "contrastive": Contrastive,
    "matching": Matching,
    "listwise": Listwise,
    "distill": Distill,
}
"""Every objective by its name in a recipe; the arguments of its constructor are the recipe's settings."""

__all__ = ["OBJECTIVES", "Contrastive", "Distill", "Field", "Listwise", "Matching", "Objective", "Pairs", "Triplet"]
